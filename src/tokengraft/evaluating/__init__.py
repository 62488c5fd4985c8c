"""How much of a model's behaviour survived a vocabulary graft."""
