package gleaner

collect := {"decision": "Orphan", "reason": "as the file says"}
