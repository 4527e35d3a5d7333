#include "areas.h"

#include <string.h>

#include "memory.h"
#include "os.h"

const char *const ep_area_words[EP_AREA_COUNT] = {
    [EP_AREA_OWN] = "own",
    [EP_AREA_INSTALLED] = "installed",
    [EP_AREA_STDLIB] = "stdlib",
    [EP_AREA_OTHER] = "other",
    [EP_AREA_NATIVE] = "native",
    [EP_AREA_SPAN] = "span",
    [EP_AREA_GC] = "gc",
};

/* ---- Text ------------------------------------------------------------------------------------ */

static bool
begins_with(ep_text text, const char *prefix)
{
    size_t bytes = strlen(prefix);
    return text.at != NULL && text.bytes >= bytes && memcmp(text.at, prefix, bytes) == 0;
}

static bool
is(ep_text text, const char *other)
{
    return text.bytes == strlen(other) && begins_with(text, other);
}

/* ---- Folders and modules --------------------------------------------------------------------- */

typedef struct place {
    char *text;
    size_t bytes;
    ep_area area;
} place;

static struct {
    place *at;
    size_t count, capacity;
} folders, modules;

static ep_status
add_place(place **at, size_t *count, size_t *capacity, ep_area area, ep_text text)
{
    char *copy = ep_calloc(text.bytes + 1, 1);
    if (copy == NULL || !ep_grow((void **)at, capacity, *count + 1, sizeof **at)) {
        free(copy);
        return EP_NOMEM;
    }
    memcpy(copy, text.at, text.bytes);
    (*at)[(*count)++] = (place){copy, text.bytes, area};
    return EP_OK;
}

ep_status
ep_area_add_folder(ep_area area, ep_text folder)
{
    return add_place(&folders.at, &folders.count, &folders.capacity, area, folder);
}

ep_status
ep_area_add_module(ep_area area, ep_text module)
{
    return add_place(&modules.at, &modules.count, &modules.capacity, area, module);
}

static bool
lies_in(ep_text text, const place *outer, char separator)
{
    return text.bytes > outer->bytes && text.at[outer->bytes] == separator &&
           memcmp(text.at, outer->text, outer->bytes) == 0;
}

static ep_area
area_of_module(ep_text module)
{
    for (size_t i = 0; module.at != NULL && i < modules.count; i++) {
        if (is(module, modules.at[i].text) || lies_in(module, &modules.at[i], '.')) {
            return modules.at[i].area;
        }
    }
    return EP_AREA_OTHER;
}

/* Whether a folder has a name such as python3.9, python3.13t or pypy3.11. */
static bool
is_of_an_interpreter(ep_text folder)
{
    static const char *const names[] = {"python", "pypy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (begins_with(folder, names[i])) {
            const char *at = folder.at + strlen(names[i]), *end = folder.at + folder.bytes;
            end -= end > at && end[-1] == 't';
            size_t digits = 0, points = 0;
            for (; at < end && ((*at >= '0' && *at <= '9') || *at == '.'); at++) {
                digits += *at != '.';
                points += *at == '.';
            }
            return at == end && points == 1 && digits >= 2;
        }
    }
    return false;
}

/* By the names of its folders. */
static ep_area
area_of_usual_folders(ep_text file)
{
    ep_area found = EP_AREA_OTHER;
    bool is_in_lib = false;
    const char *from = file.at, *end = file.at + file.bytes, *slash;
    for (; (slash = memchr(from, '/', (size_t)(end - from))) != NULL; from = slash + 1) {
        ep_text folder = {from, (size_t)(slash - from)};
        if (is(folder, "site-packages") || is(folder, "dist-packages")) {
            return EP_AREA_INSTALLED;
        }
        if (is(folder, "lib-python") || is(folder, "lib_pypy") ||
            (is_in_lib && is_of_an_interpreter(folder))) {
            found = EP_AREA_STDLIB;
        }
        is_in_lib = is(folder, "lib") || is(folder, "lib64");
    }
    return found;
}

static ep_area
area_of_file(ep_text file)
{
    if (begins_with(file, "<")) {
        return begins_with(file, "<frozen ") ? EP_AREA_STDLIB : EP_AREA_OTHER;
    }
    const place *longest = NULL;
    for (size_t i = 0; i < folders.count; i++) {
        const place *folder = &folders.at[i];
        if (lies_in(file, folder, '/') && (longest == NULL || folder->bytes > longest->bytes)) {
            longest = folder;
        }
    }
    return longest != NULL ? longest->area : area_of_usual_folders(file);
}

ep_area
ep_area_of_place(ep_text module, ep_text file)
{
    return file.at != NULL ? area_of_file(file) : area_of_module(module);
}

/* ---- Whose code ------------------------------------------------------------------------------ */

/* Whether a person typed the text, or gave it after -c. */
static bool
is_typed(ep_text file)
{
    static const char *const names[] = {"<stdin", "<ipython-input", "<python-input", "<cell",
                                        "<doctest", "<console", "<input"};
    bool found = is(file, "<string>");
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        found = begins_with(file, names[i]);
    }
    return found;
}

/* Whether an installer put the script beside an interpreter, as it does with pytest. */
static bool
is_launcher(ep_text file)
{
    size_t folder = file.bytes;    /* bytes of the folder with its last slash */
    while (folder > 0 && file.at[folder - 1] != '/') {
        folder -= 1;
    }
    ep_text script = {file.at + folder, file.bytes - folder};
    char interpreter[4096];
    if (folder == 0 || memchr(script.at, '.', script.bytes) != NULL ||
        folder + sizeof "python" > sizeof interpreter) {
        return false;
    }
    memcpy(interpreter, file.at, folder);
    memcpy(interpreter + folder, "python", sizeof "python");
    return is(script, "eventprof") || ep_os_path_exists(interpreter);
}

ep_area
ep_area_of(const ep_name_text *function)
{
    if (function->kind == EP_NAME_USER) {
        return EP_AREA_SPAN;
    }
    if (function->kind == EP_NAME_GC) {
        return EP_AREA_GC;
    }
    if (function->kind != EP_NAME_PYTHON || function->file.at == NULL) {
        return EP_AREA_NATIVE;
    }
    ep_text module = function->module, file = function->file;
    bool is_main = is(module, "__main__");
    ep_area area = area_of_file(file);
    if (area != EP_AREA_OTHER) {
        return area;
    }
    if (begins_with(file, "<")) {
        return is_main && is_typed(file) ? EP_AREA_OWN : EP_AREA_OTHER;
    }
    bool is_ours = is(module, "eventprof") || begins_with(module, "eventprof.");
    return is_ours || (is_main && is_launcher(file)) ? EP_AREA_OTHER : EP_AREA_OWN;
}
