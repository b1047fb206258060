"""The demonstration: a year of flights through queues, Spark and a crash, reconciled at the end."""
