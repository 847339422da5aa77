"""The tasks that come with `ddpjob-train`. Each is written as a user would write one: a model and its data."""
