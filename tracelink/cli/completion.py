"""`tracelink completion`."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from tracelink.cli.group import main
from tracelink.cli.options import command
from tracelink.cli.voice import Voice
from tracelink.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TRACELINK_COMPLETE"


@command(
    "bash: tracelink completion bash > ~/.local/share/bash-completion/completions/tracelink",
    'zsh:  tracelink completion zsh > "${fpath[1]}/_tracelink"',
    "fish: tracelink completion fish > ~/.config/fish/completions/tracelink.fish",
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(voice: Voice, shell: str | None) -> None:
    """Print the script that completes commands in your shell.

    Without an argument: for the shell in $SHELL. Write it to the file that your shell looks for, as in the
    examples (make the folder if there is none), and open a new shell.
    """
    shell = shell or _users_shell()
    made = get_completion_class(shell)
    assert made is not None
    script = made(main, {}, "tracelink", VARIABLE).source()
    if voice.json:
        voice.document({"shell": shell, "script": script})
    else:
        click.echo(script)


def _users_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(
            "it is not known which shell you use", advice=f"Name it: tracelink completion {'|'.join(SHELLS)}"
        )
    return name
