"""A job's history: what its nodes print and what happens there, written beside training, for when pods are gone."""
