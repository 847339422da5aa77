"""Why a rank ended: the report that it leaves, and the advice about well-known mistakes."""
