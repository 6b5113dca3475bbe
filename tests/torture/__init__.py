"""What hostile files and sudden ends do to a corpus: `make torture`, and a part of it in `make test`."""
