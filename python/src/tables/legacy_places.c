/* Places of the drop-in's rows; the contract is in legacy_places.h. */
#include "legacy_places.h"

#include "hash.h"
#include "intern.h"
#include "memory.h"
#include "rows.h"

/* ---- Who is where ------------------------------------------------------------------------------ */

typedef struct place_names {
    uint32_t name;      /* of the function; of an allocation the one that was executing */
    uint32_t python;    /* the Python function at work there */
    uint32_t caller;    /* 0: unknown */
    int32_t line;       /* of the call; -1: unknown */
} place_names;

static bool
is_python(uint32_t name)
{
    return name != 0 && ep_name_get(name)->kind == EP_NAME_PYTHON;
}

static place_names
names_of(uint32_t place)
{
    bool is_name = (place & EP_ROWS_IS_NAME) != 0;
    const ep_site *site = ep_site_get(is_name ? 0 : place);
    uint32_t name = is_name ? place & ~EP_ROWS_IS_NAME : site->callee;
    if (name == 0) {
        name = site->caller;    /* an allocation: by the function itself */
    }
    return (place_names){
        .name = name,
        .python = ep_name_get(name)->kind == EP_NAME_PYTHON ? name : site->caller,
        .caller = site->caller,
        .line = site->caller != 0 && site->line > 0 ? site->line : -1,
    };
}

/* ---- Words ------------------------------------------------------------------------------------- */

static uint64_t
hash_of_word(const void *words, size_t row)
{
    const ep_legacy_word *word = (const ep_legacy_word *)words + row;
    uint64_t hash = ep_hash_bytes(EP_HASH_EMPTY ^ word->is_file, word->text.at, word->text.bytes);
    return hash ^ hash >> 32;
}

static bool
is_word(const void *words, size_t row, const void *key)
{
    const ep_legacy_word *word = (const ep_legacy_word *)words + row, *wanted = key;
    return word->is_file == wanted->is_file && word->text.bytes == wanted->text.bytes &&
           memcmp(word->text.at, wanted->text.at, wanted->text.bytes) == 0;
}

/* *code: of a word; -1 if there is no text. */
static EP_CHECKED ep_status
code_of(ep_legacy_words *words, ep_text text, bool is_file, int32_t *code)
{
    *code = -1;
    if (text.at == NULL) {
        return EP_OK;
    }
    if (!ep_hash_index_reserve(&words->by_text, hash_of_word, words->rows)) {
        return EP_NOMEM;
    }
    ep_legacy_word word = {text, is_file};
    uint32_t *slot =
        ep_hash_index_slot(&words->by_text, hash_of_word(&word, 0), is_word, words->rows, &word);
    if (*slot == 0) {
        if (!ep_grow((void **)&words->rows, &words->capacity, words->count + 1, sizeof *words->rows)) {
            return EP_NOMEM;
        }
        words->rows[words->count] = word;
        ep_hash_index_add(&words->by_text, slot, words->count++);
    }
    *code = (int32_t)*slot - 1;
    return EP_OK;
}

PyObject *
ep_legacy_words_list(const ep_legacy_words *words, bool with_files)
{
    PyObject *list = PyList_New((Py_ssize_t)words->count);
    for (size_t i = 0; i < words->count && list != NULL; i++) {
        const ep_legacy_word *word = &words->rows[i];
        PyObject *text =
            PyUnicode_DecodeUTF8(word->text.at, (Py_ssize_t)word->text.bytes, "surrogatepass");
        if (text != NULL && with_files) {
            text = Py_BuildValue("NO", text, word->is_file ? Py_True : Py_False);
        }
        if (text == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, text);
        }
    }
    return list;
}

/* ---- Places ------------------------------------------------------------------------------------ */

/* The original shows co_name, which is the last part of the qualified name. */
static ep_text
last_part(ep_text text)
{
    for (size_t i = text.at != NULL ? text.bytes : 0; i-- > 0;) {
        if (text.at[i] == '.') {
            return (ep_text){text.at + i + 1, text.bytes - i - 1};
        }
    }
    return text;
}

static EP_CHECKED ep_status
codes_of_name(ep_legacy_places *places, uint32_t id, int32_t codes[2])
{
    const ep_name *name = ep_name_get(id);
    bool python = is_python(id);
    ep_text text = ep_string_get(name->qualname);
    ep_status status = code_of(&places->names, python ? last_part(text) : text, false, &codes[0]);
    return status != EP_OK ? status
                           : code_of(&places->files, ep_string_get(python ? name->file : name->module),
                                     python, &codes[1]);
}

/* Without a caller: empty texts, as in the original. */
static EP_CHECKED ep_status
codes_of_nobody(ep_legacy_places *places, int32_t codes[2])
{
    static const ep_text empty = {"", 0};
    ep_status status = code_of(&places->names, empty, false, &codes[0]);
    return status != EP_OK ? status : code_of(&places->files, empty, false, &codes[1]);
}

ep_status
ep_legacy_learn(ep_legacy_places *places, const uint32_t *numbers, size_t count)
{
    if (!ep_grow((void **)&places->rows, &places->capacity, count, sizeof *places->rows)) {
        return EP_NOMEM;
    }
    for (; places->count < count; places->count++) {
        ep_legacy_place *place = &places->rows[places->count];
        place_names names = names_of(numbers[places->count]);
        int32_t first_line = ep_name_get(names.python)->line;
        *place = (ep_legacy_place){
            .frame = (int32_t)names.python,
            .arg = names.name != names.python ? (int32_t)names.name : 0,
            .first_line = first_line > 0 ? first_line : -1,
            .line = names.line,
        };
        ep_status status = codes_of_name(places, names.name, &place->code[EP_LEGACY_NAME]);
        if (status == EP_OK) {
            int32_t *codes = &place->code[EP_LEGACY_FROM_NAME];
            status = names.caller != 0 ? codes_of_name(places, names.caller, codes)
                                       : codes_of_nobody(places, codes);
        }
        if (status != EP_OK) {
            return status;
        }
        for (int i = EP_LEGACY_TEXTS; i-- > 0;) {
            place->bytes = place->bytes << 8 | (uint8_t)place->code[i];
        }
    }
    return EP_OK;
}

static void
words_clear(ep_legacy_words *words)
{
    free(words->rows);
    ep_hash_index_free(&words->by_text);
}

void
ep_legacy_places_clear(ep_legacy_places *places)
{
    words_clear(&places->names);
    words_clear(&places->files);
    free(places->rows);
}
