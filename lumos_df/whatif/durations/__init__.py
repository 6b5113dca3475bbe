"""How long every operator of a changed job takes, and how that is known."""
