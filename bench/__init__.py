"""Benchmarks. Each module is a separate program or a part of one."""
