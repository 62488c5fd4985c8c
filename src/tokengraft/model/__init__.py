"""A model folder: its weights as bytes, its tables, and one frozen model that reads."""
