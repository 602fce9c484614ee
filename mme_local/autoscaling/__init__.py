"""Application Auto Scaling of the local cloud: targets, policies, schedules and the activities that come of them."""
