"""Scheduling for GPUs: reduction fusion and splitting, rematerialisation, software pipelining."""
