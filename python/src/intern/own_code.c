/* Decides which functions are eventprof's own. They are never recorded, and a function that they call has
 * the program's frame above them as its caller. */
#include "intern.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "intern_parts.h"

static char own_directory[1024];                             /* of the package's .py files */
static size_t own_directory_bytes;
/* The files that start `eventprof run`: the console script, and runpy, which -m and directories need. Their
 * code counts as our own. Written before recording begins. */
#define LAUNCHER_FILES 2
static struct {
    char file[1024];
    size_t bytes;
} launcher[LAUNCHER_FILES];
static size_t launcher_count;
static PyInterpreterState *own_interpreter;

void
ep_py_set_own_directory(const char *directory)
{
    size_t bytes = strlen(directory);
    if (bytes < sizeof own_directory) {
        memcpy(own_directory, directory, bytes);
        own_directory_bytes = bytes;
    }
}

void
ep_py_add_launcher_file(const char *file)
{
    size_t bytes = strlen(file);
    if (launcher_count < LAUNCHER_FILES && bytes < sizeof launcher[0].file) {
        memcpy(launcher[launcher_count].file, file, bytes);
        launcher[launcher_count].bytes = bytes;
        launcher_count += 1;
    }
}

/* It only reads memory, because allocator hooks call it, too. */
bool
ep_py_is_own_code(PyCodeObject *code)
{
    PyObject *file = code->co_filename;
    size_t bytes = own_directory_bytes;
    if (bytes == 0 || PyUnicode_KIND(file) != PyUnicode_1BYTE_KIND) {
        return false;
    }
    size_t length = (size_t)PyUnicode_GET_LENGTH(file);
    for (size_t i = 0; i < launcher_count; i++) {
        if (length == launcher[i].bytes && memcmp(PyUnicode_DATA(file), launcher[i].file, length) == 0) {
            return true;
        }
    }
    return length > bytes && memcmp(PyUnicode_DATA(file), own_directory, bytes) == 0;
}

const void *
ep_py_image_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

/* The address of our own image, looked up once, because a program may call us very often. */
static uintptr_t own_image;
static size_t own_image_bytes;    /* 0: not found */

static int
visit_image(struct dl_phdr_info *info, size_t info_bytes, void *context)
{
    uintptr_t first = UINTPTR_MAX, last = 0, own = (uintptr_t)own_directory;
    (void)info_bytes;
    (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            uintptr_t end = start + info->dlpi_phdr[i].p_memsz;
            first = start < first ? start : first;
            last = end > last ? end : last;
        }
    }
    if (own < first || own >= last) {
        return 0;
    }
    own_image = first;
    own_image_bytes = last - first;
    return 1;
}

bool
ep_py_is_own_method(const PyMethodDef *method)
{
    if (EP_UNLIKELY(own_image_bytes == 0)) {
        return ep_py_image_of(method) == ep_py_image_of(own_directory);
    }
    return (uintptr_t)method - own_image < own_image_bytes;
}

bool
ep_py_is_own_interpreter(const PyThreadState *ts)
{
    return ts->interp == own_interpreter;
}

void
ep_py_own_code_init(void)
{
    own_interpreter = PyInterpreterState_Get();
    (void)dl_iterate_phdr(visit_image, NULL);
}
