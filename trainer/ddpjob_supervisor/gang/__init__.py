"""The gang, made of all supervisors of a job: how an attempt starts, what ends it, and what follows."""
