#include "footprint.h"

#include "intern.h"
#include "os.h"

_Atomic uintptr_t ep_footprint[EP_FOOTPRINT_SLOTS];
_Atomic bool ep_footprint_boxes, ep_footprint_tables;

void
ep_footprint_clear(void)
{
    static atomic_flag touched = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set_explicit(&touched, memory_order_relaxed)) {
        ep_os_own_add(sizeof ep_footprint);    /* the pages of the table stay resident */
    }
    for (size_t i = 0; i < EP_FOOTPRINT_SLOTS; i++) {
        atomic_store_explicit(&ep_footprint[i], 0, memory_order_relaxed);
    }
    ep_omitted_clear();
}

void
ep_footprint_use(bool wanted)
{
    if (wanted) {
        atomic_fetch_or_explicit(&ep_omitted_state, EP_OMITTED_FOOTPRINT, memory_order_relaxed);
    } else {
        atomic_fetch_and_explicit(&ep_omitted_state, ~EP_OMITTED_FOOTPRINT, memory_order_relaxed);
    }
}

/* ---- What the interpreter makes for its events ------------------------------------------------- */

bool
ep_footprint_take_box(ep_log *log)
{
#if EP_PROFILE_BOXES
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

#if EP_HAS_MONITORING

bool
ep_py_take_back_tables(ep_log *log, PyCodeObject *code)
{
    const ep_code_monitoring *data = (const ep_code_monitoring *)ep_code_event_table(code);
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
ep_py_take_back_tables(ep_log *log, PyCodeObject *code)
{
    (void)log;
    (void)code;
    return false;
}

#endif
