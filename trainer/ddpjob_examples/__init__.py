"""The tasks that come with `ddpjob-train`, each as anybody would write one: a model, and what it learns from."""
