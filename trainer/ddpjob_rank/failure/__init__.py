"""Why a rank failed: the report that it leaves, and the advice about well-known mistakes."""
