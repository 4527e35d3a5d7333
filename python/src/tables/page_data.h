/* _core.PageData: what the page in the browser has of a trace (page.h). */
#ifndef EP_PAGE_DATA_H
#define EP_PAGE_DATA_H

#include "trace_object.h"

extern PyType_Spec ep_py_page_data_spec;

#endif
