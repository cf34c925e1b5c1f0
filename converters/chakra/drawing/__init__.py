"""Pictures of nodes and what they wait for."""
