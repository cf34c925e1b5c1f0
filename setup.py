"""The packages of the distribution, found by folder. `package-dir` in pyproject.toml installs them inside tracelink."""

from setuptools import find_packages, setup

FOLDERS = ("converters", "samples", "schemas")

setup(
    packages=[
        *find_packages(include=["tracelink", "tracelink.*"]),
        *(
            f"tracelink.{name}"
            for folder in FOLDERS
            for name in find_packages(include=[folder, f"{folder}.*"])
        ),
    ]
)
