"""A benchmark out of a recorded job: a folder of a plan, a manifest and a program that runs with torch alone."""
