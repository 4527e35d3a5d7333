/* The texts of a log file: strings, names, sites and threads, written as they are made. */
#include <errno.h>
#include <string.h>

#include "fault.h"
#include "file_parts.h"
#include "guard.h"
#include "invariants.h"
#include "names.h"
#include "os.h"

_Atomic(ep_file *) ep_file_of_texts;
/* On a thread that writes all texts to another file: that file. */
static _Thread_local ep_file *other_file_of_texts;
/* While it is held, the file stays open; taken before the file's own lock. */
static pthread_mutex_t texts_lock = PTHREAD_MUTEX_INITIALIZER;

void
ep_file_seal_texts(ep_file *file)
{
    ep_chunk_header *texts = file->texts;
    if (texts == NULL) {
        return;
    }
    texts->used_words = (uint64_t)(file->text_next - (_Atomic uint64_t *)(texts + 1));
    texts->sum = ep_sum64(texts + 1, texts->used_words * 8);
    atomic_store_explicit(&texts->state, EP_CHUNK_SEALED, memory_order_release);
    ep_os_unmap(texts, file->text_bytes);
    file->texts = NULL;
}

static bool
next_text_chunk(ep_file *file, size_t words)
{
    size_t needed = sizeof(ep_chunk_header) + (words + 1) * 8;
    size_t bytes = ep_file_slot_bytes_for(file, needed, file->text_bytes);
    ep_chunk_header *fresh = ep_file_take_slot_locked(file, bytes);
    if (fresh == NULL) {
        return false;
    }
    EP_FAULT_POINT(TEXT_SLOT);
    ep_file_seal_texts(file);
    file->text_bytes = bytes;
    fresh->sequence = file->text_sequence++;
    fresh->magic = EP_FILE_TEXT_MAGIC;
    file->texts = fresh;
    file->text_next = (_Atomic uint64_t *)(fresh + 1);
    atomic_store_explicit(&fresh->state, EP_CHUNK_OPEN, memory_order_release);
    return true;
}

/* A record: fields as 32-bit words, then bytes, padded; the first word is published last, after the
 * terminator after it. False: no room. */
static bool
put_text_locked(ep_file *file, ep_file_text type, const uint32_t *fields, size_t field_count,
                const char *bytes, size_t byte_count)
{
    size_t words = 1 + (field_count * 4 + byte_count + 7) / 8;
    size_t left = 0;
    if (file->texts != NULL) {
        left = (size_t)((_Atomic uint64_t *)(file->texts + 1) + EP_CHUNK_WORDS_OF(file->text_bytes) -
                        file->text_next);
    }
    if (words >= left && !next_text_chunk(file, words)) {
        return false;
    }
    _Atomic uint64_t *at = file->text_next;
    char *body = (char *)(at + 1);
    memcpy(body, fields, field_count * 4);
    if (byte_count > 0) {
        memcpy(body + field_count * 4, bytes, byte_count);
    }
    atomic_store_explicit(&at[words], 0, memory_order_relaxed);
    EP_FAULT_POINT(TEXT);
    atomic_store_explicit(&at[0], (uint64_t)type << 32 | words, memory_order_release);
    file->text_next = at + words;
    return true;
}

static void
put_text(ep_file_text type, const uint32_t *fields, size_t field_count, const char *bytes,
         size_t byte_count)
{
    if (EP_UNLIKELY(ep_os_is_forked())) {
        return;    /* the file is the parent's */
    }
    int os_error = errno;    /* errno is the program's: hooks call this */
    pthread_mutex_lock(&texts_lock);
    ep_file *file = other_file_of_texts;
    if (file == NULL) {
        file = atomic_load_explicit(&ep_file_of_texts, memory_order_relaxed);
    }
    if (file != NULL) {
        pthread_mutex_lock(&file->lock);
        if (!put_text_locked(file, type, fields, field_count, bytes, byte_count)) {
            atomic_fetch_add_explicit(&file->header->texts_lost, 1, memory_order_relaxed);
        }
        EP_CHECK_INVARIANTS(ep_file_check(file));
        pthread_mutex_unlock(&file->lock);
    }
    pthread_mutex_unlock(&texts_lock);
    errno = os_error;
}

static void
put_string(uint32_t id, ep_text text)
{
    size_t bytes = text.bytes < EP_FILE_STRING_LIMIT ? text.bytes : EP_FILE_STRING_LIMIT;
    uint32_t fields[] = {id, (uint32_t)bytes};
    put_text(EP_FILE_TEXT_STRING, fields, 2, text.at, bytes);
}

static void
put_name(uint32_t id, const ep_name *name)
{
    uint32_t fields[] = {id, name->qualname, name->module, name->file, (uint32_t)name->line, name->kind};
    put_text(EP_FILE_TEXT_NAME, fields, 6, NULL, 0);
}

static void
put_site(uint32_t id, const ep_site *site)
{
    uint32_t fields[] = {id, site->callee, site->caller, (uint32_t)site->offset, (uint32_t)site->line,
                         site->task};
    /* Few sites have a sixth. */
    put_text(EP_FILE_TEXT_SITE, fields, site->task != 0 ? 6 : 5, NULL, 0);
}

void
ep_file_put_thread(const ep_thread *thread)
{
    bool named = atomic_load_explicit(&thread->named, memory_order_acquire);
    size_t bytes = named ? strlen(thread->name) : 0;
    uint32_t fields[] = {thread->id, (uint32_t)bytes, (uint32_t)thread->native_id,
                         (uint32_t)(thread->native_id >> 32)};
    put_text(EP_FILE_TEXT_THREAD, fields, 4, thread->name, bytes);
}

void
ep_file_put_resident(int64_t monotonic_ns, int64_t bytes, int64_t own_bytes)
{
    uint32_t fields[] = {(uint32_t)monotonic_ns, (uint32_t)((uint64_t)monotonic_ns >> 32),
                         (uint32_t)bytes, (uint32_t)((uint64_t)bytes >> 32),
                         (uint32_t)own_bytes, (uint32_t)((uint64_t)own_bytes >> 32)};
    put_text(EP_FILE_TEXT_RESIDENT, fields, 6, NULL, 0);
}

static const ep_names_sink names_sink = {
    .string = put_string,
    .name = put_name,
    .site = put_site,
};

static void
set_file_of_texts(void *file)
{
    pthread_mutex_lock(&texts_lock);
    atomic_store_explicit(&ep_file_of_texts, file, memory_order_release);
    atomic_store_explicit(&ep_names_sink_now, file != NULL ? &names_sink : NULL, memory_order_release);
    pthread_mutex_unlock(&texts_lock);
}

void
ep_file_begin_texts(ep_file *file)
{
    ep_names_tell_all(&names_sink, set_file_of_texts, file);
}

static void
set_other_file_of_texts(void *file)
{
    other_file_of_texts = file;
}

void
ep_file_begin_other_texts(ep_file *file)
{
    ep_names_tell_all(&names_sink, set_other_file_of_texts, file);
}

void
ep_file_end_other_texts(void)
{
    set_other_file_of_texts(NULL);
}

void
ep_file_end_texts(void)
{
    set_file_of_texts(NULL);
}

void
ep_file_before_fork(void)
{
    pthread_mutex_lock(&texts_lock);
    ep_guard_before_fork();
}

void
ep_file_after_fork(bool child)
{
    ep_guard_after_fork();
    if (child) {
        atomic_store_explicit(&ep_file_of_texts, NULL, memory_order_relaxed);
        atomic_store_explicit(&ep_names_sink_now, NULL, memory_order_relaxed);
    }
    pthread_mutex_unlock(&texts_lock);
}

void
ep_file_after_bare_fork(void)
{
    pthread_mutex_init(&texts_lock, NULL);
    atomic_store_explicit(&ep_file_of_texts, NULL, memory_order_relaxed);
    atomic_store_explicit(&ep_names_sink_now, NULL, memory_order_relaxed);
}
