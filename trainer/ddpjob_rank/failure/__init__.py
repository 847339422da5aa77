"""Why a rank failed: the failure report that it writes, and advice about common mistakes."""
