"""Write a model folder with new tokens, and prove it sound."""
