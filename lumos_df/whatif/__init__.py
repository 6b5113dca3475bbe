"""From a measured job to one that never ran: the recorded graph, its blocks and times changed, and run again."""
