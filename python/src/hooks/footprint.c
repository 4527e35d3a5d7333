/* The footprint's tables, and what only some versions of the interpreter allocate for a hook. */
#include "compat.h"

#include "footprint.h"
#include "intern.h"

_Atomic uintptr_t ep_footprint[EP_FOOTPRINT_SLOTS];
_Atomic bool ep_footprint_on, ep_footprint_boxes, ep_footprint_tables;
_Atomic int64_t ep_footprint_more_count;
static _Atomic uintptr_t footprint_more[EP_FOOTPRINT_MORE];

/* ---- Blocks that found no place in the table ------------------------------------------------- */

#define MORE_PROBES 16

static _Atomic uintptr_t *
more_slot(uintptr_t address, size_t probe)
{
    size_t hash = (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    return &footprint_more[(hash + probe) & (EP_FOOTPRINT_MORE - 1)];
}

/* One that finds no place is one unknown free. */
void
ep_footprint_list_more(uintptr_t address)
{
    for (size_t probe = 0; probe < MORE_PROBES; probe++) {
        uintptr_t empty = 0;
        if (atomic_compare_exchange_strong_explicit(more_slot(address, probe), &empty, address,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            atomic_fetch_add_explicit(&ep_footprint_more_count, 1, memory_order_relaxed);
            return;
        }
        if (empty == address) {
            return;
        }
    }
}

bool
ep_footprint_unlist_more(uintptr_t address)
{
    for (size_t probe = 0; probe < MORE_PROBES; probe++) {
        uintptr_t found = address;
        if (atomic_compare_exchange_strong_explicit(more_slot(address, probe), &found, 0,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            atomic_fetch_sub_explicit(&ep_footprint_more_count, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

void
ep_footprint_clear(void)
{
    for (size_t i = 0; i < EP_FOOTPRINT_SLOTS; i++) {
        atomic_store_explicit(&ep_footprint[i], 0, memory_order_relaxed);
    }
    if (atomic_load_explicit(&ep_footprint_more_count, memory_order_relaxed) != 0) {
        for (size_t i = 0; i < EP_FOOTPRINT_MORE; i++) {
            atomic_store_explicit(&footprint_more[i], 0, memory_order_relaxed);
        }
        atomic_store_explicit(&ep_footprint_more_count, 0, memory_order_relaxed);
    }
}

/* ---- What some versions allocate ----------------------------------------------------------------- */

bool
ep_footprint_take_box(ep_log *log)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    uintptr_t block = ep_log_last_block(log);
    if (block == 0) {
        return false;
    }
    uint64_t size = EP_WORD0_PAYLOAD(atomic_load_explicit(log->last_block, memory_order_relaxed));
    PyLongObject *object = (PyLongObject *)block;
    if (size < 24 || size > 48 || !Py_IS_TYPE((PyObject *)object, &PyLong_Type) ||
        !PyUnstable_Long_IsCompact(object)) {
        return false;
    }
    ep_frame *frame = ep_py_frame_now();
    return frame != NULL && PyUnstable_Long_CompactValue(object) == ep_frame_offset(frame) &&
           ep_footprint_take_lasting(log, block);
#else
    (void)log;
    return false;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
#if PY_VERSION_HEX >= 0x030E0000
/* As pycore_instruments.h has it, which extensions cannot include. */
#define EP_LOCAL_EVENTS (PY_VERSION_HEX >= 0x030F0000 ? 16 : 11)
typedef struct monitoring_data {
    uint8_t local_monitors[EP_LOCAL_EVENTS], active_monitors[EP_LOCAL_EVENTS];
    uint8_t *tools;
    uintptr_t tool_versions[8];
    void *lines;
    uint8_t *line_tools, *per_instruction_opcodes, *per_instruction_tools;
} monitoring_data;
#else
typedef _PyCoMonitoringData monitoring_data;
#endif

bool
ep_footprint_take_tables(ep_log *log, PyCodeObject *code)
{
    const monitoring_data *data = (const monitoring_data *)code->_co_monitoring;
    if (data == NULL) {
        return false;
    }
    /* The last that is made first. */
    const void *const own[] = {data->per_instruction_tools,
                               data->per_instruction_opcodes,
                               data->line_tools,
                               data->lines,
                               data->tools,
                               data};
    bool taken = false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        uintptr_t address = (uintptr_t)own[i];
        if (EP_UNLIKELY(address == ep_log_address_before(log)) && address != 0) {
            taken = ep_footprint_take_far(log, address) || taken;
        }
    }
    return taken;
}

#else

bool
ep_footprint_take_tables(ep_log *log, PyCodeObject *code)
{
    (void)log;
    (void)code;
    return false;
}

#endif
