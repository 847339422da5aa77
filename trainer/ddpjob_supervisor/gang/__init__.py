"""All supervisors of a job as one gang: attempts, what ends them, and the next one."""
