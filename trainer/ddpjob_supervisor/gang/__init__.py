"""All supervisors of a job as one gang: how an attempt starts, what ends it, and what follows."""
