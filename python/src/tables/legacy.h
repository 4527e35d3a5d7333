/* Rows as cpyquickhelper's EventProfiler gave them: what plugins/event_profiler.py is made of. */
#ifndef EP_LEGACY_H
#define EP_LEGACY_H

#include "trace_object.h"

/* _core.LegacyLog: what the user logs, and the rows of both. */
extern PyType_Spec ep_py_legacy_log_spec;

#endif
