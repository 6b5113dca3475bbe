"""Where the files of the views are; a module of its own, as who asks for no more reads none of them."""

from pathlib import Path


def sql_folder() -> Path:
    """Return the folder of the view files: inside an installed package, else at the root of the repository."""
    package = Path(__file__).parent.parent
    installed = package / "sql"
    return installed if installed.is_dir() else package.parent / "sql"
