/* Halyard: handles, callbacks, constants and structures of the public interface.
 *
 * Names, values, sizes and offsets are those of UCX 1.23 and are part of the binary interface:
 * nothing here may move, and structures grow only at their end (test/abi checks each of them). A
 * program built with older headers passes shorter structures, so the library reads and writes a
 * field only if its bit in the mask that opens the structure is set; the caller leaves all other
 * fields uninitialised. A mask bit that the library does not know is ignored.
 * Lengths are in bytes, addresses of remote memory are those of the owner's address space.
 * The functions are in <ucp/api/ucp.h>.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef UCP_API_UCP_DEF_H
#define UCP_API_UCP_DEF_H

#include <ucs/config/types.h>
#include <ucs/memory/memory_type.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/cpu_set.h>
#include <ucs/type/status.h>
#include <ucs/type/thread_mode.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS

/* ---- Handles. All are opaque, 8 bytes, and owned by the library. ---- */

typedef struct ucp_context      *ucp_context_h;       /* transports and memory of one user */
typedef struct ucp_config       ucp_config_t;         /* configuration before ucp_init */
typedef struct ucp_worker       *ucp_worker_h;        /* progress, matching, and endpoints */
typedef struct ucp_ep           *ucp_ep_h;            /* connection from a worker to a peer */
typedef struct ucp_address      ucp_address_t;        /* bytes by which a worker is reached */
typedef struct ucp_listener     *ucp_listener_h;      /* socket address that accepts clients */
typedef struct ucp_conn_request *ucp_conn_request_h;  /* a client that asks to be accepted */
typedef struct ucp_mem          *ucp_mem_h;           /* memory registered with a context */
typedef struct ucp_rkey         *ucp_rkey_h;          /* right to access a peer's memory */
typedef struct ucp_recv_desc    *ucp_tag_message_h;   /* a message taken out by a probe */

typedef uint64_t ucp_tag_t;
typedef uint64_t ucp_datatype_t;

/* Size in bytes, with the closing zero, of the name fields of attributes. */
#define UCP_ENTITY_NAME_MAX 32

/* ---- Callbacks. ----
 *
 * All run on the thread that is inside a call of the library, mostly ucp_worker_progress, with the
 * worker's lock held in UCS_THREAD_MODE_MULTI. The lock is recursive: a callback may post
 * operations, release its own request and create endpoints. It must not block, and a nested
 * ucp_worker_progress returns 0. A send-side callback never runs inside the call that posts it. */

typedef struct ucp_tag_recv_info ucp_tag_recv_info_t;
typedef struct ucp_am_recv_param ucp_am_recv_param_t;

/* Once for the memory of each request: when the library creates it, and when it gives it back. The
 * memory is used for many operations in between and keeps what the user wrote there. */
typedef void (*ucp_request_init_callback_t)(void *request);
typedef void (*ucp_request_cleanup_callback_t)(void *request);

/* End of a send, put, get, atomic, flush or close: of the _nb calls, and of the _nbx calls. */
typedef void (*ucp_send_callback_t)(void *request, ucs_status_t status);
typedef void (*ucp_send_nbx_callback_t)(void *request, ucs_status_t status, void *user_data);

/* End of a tag receive. The info is readable for every status, and only during the callback; with
 * UCS_ERR_MESSAGE_TRUNCATED its length is the length sent. */
typedef void (*ucp_tag_recv_callback_t)(void *request, ucs_status_t status,
                                        ucp_tag_recv_info_t *info);
typedef void (*ucp_tag_recv_nbx_callback_t)(void *request, ucs_status_t status,
                                            const ucp_tag_recv_info_t *tag_info,
                                            void *user_data);

/* End of a stream receive, and of the receive of an active message's data; length in bytes. */
typedef void (*ucp_stream_recv_callback_t)(void *request, ucs_status_t status, size_t length);
typedef void (*ucp_stream_recv_nbx_callback_t)(void *request, ucs_status_t status, size_t length,
                                               void *user_data);
typedef void (*ucp_am_recv_data_nbx_callback_t)(void *request, ucs_status_t status, size_t length,
                                                void *user_data);

/* An endpoint has failed. Called at most once an endpoint, from progress, never after the
 * endpoint's close was called. The endpoint stays the user's, who closes it (also in this
 * callback). arg is the endpoint's user_data where that was given, else the handler's arg. */
typedef void (*ucp_err_handler_cb_t)(void *arg, ucp_ep_h ep, ucs_status_t status);

/* A client has been accepted as ep (older form), or waits to be accepted (see ucp_ep_create and
 * ucp_listener_reject, one of which must follow, now or later; what is not decided when the
 * listener's worker is destroyed is rejected then). */
typedef void (*ucp_listener_accept_callback_t)(ucp_ep_h ep, void *arg);
typedef void (*ucp_listener_conn_callback_t)(ucp_conn_request_h conn_request, void *arg);

/* An active message has arrived; older form. flags has UCP_CB_PARAM_FLAG_DATA where returning
 * UCS_INPROGRESS keeps the data until ucp_am_data_release; with UCS_OK the library takes it back.
 * reply_ep is NULL unless the sender asked for it. */
typedef ucs_status_t (*ucp_am_callback_t)(void *arg, void *data, size_t length, ucp_ep_h reply_ep,
                                          unsigned flags);

/* An active message has arrived. The header is readable only during the callback. param->recv_attr
 * says what data is: with UCP_AM_RECV_ATTR_FLAG_RNDV a descriptor for ucp_am_recv_data_nbx (length
 * bytes still lie at the sender), else the data itself; with UCP_AM_RECV_ATTR_FLAG_DATA or _RNDV
 * the callback may return UCS_INPROGRESS and so owns data until ucp_am_recv_data_nbx or
 * ucp_am_data_release. Returning UCS_OK gives data back; a descriptor whose receive was not begun
 * by then is dropped, and its send ends with UCS_OK, or with the error that was returned.
 * The header, and data without either flag, may lie in memory that the sender, a process of the
 * same user, can still write: who does not trust it copies before checking, or sets
 * UCP_AM_FLAG_PERSISTENT_DATA for data that is a copy. So it is with ucp_am_callback_t. */
typedef ucs_status_t (*ucp_am_recv_callback_t)(void *arg, const void *header, size_t header_length,
                                               void *data, size_t length,
                                               const ucp_am_recv_param_t *param);

/* ---- Context ---- */

enum ucp_params_field {
    UCP_PARAM_FIELD_FEATURES          = UCS_BIT(0),
    UCP_PARAM_FIELD_REQUEST_SIZE      = UCS_BIT(1),
    UCP_PARAM_FIELD_REQUEST_INIT      = UCS_BIT(2),
    UCP_PARAM_FIELD_REQUEST_CLEANUP   = UCS_BIT(3),
    UCP_PARAM_FIELD_TAG_SENDER_MASK   = UCS_BIT(4),
    UCP_PARAM_FIELD_MT_WORKERS_SHARED = UCS_BIT(5),
    UCP_PARAM_FIELD_ESTIMATED_NUM_EPS = UCS_BIT(6),
    UCP_PARAM_FIELD_ESTIMATED_NUM_PPN = UCS_BIT(7),
    UCP_PARAM_FIELD_NAME              = UCS_BIT(8),
    UCP_PARAM_FIELD_NODE_LOCAL_ID     = UCS_BIT(9)
};

/* Groups of functions that a context is asked to offer. */
enum ucp_feature {
    UCP_FEATURE_TAG           = UCS_BIT(0),  /* ucp_tag_... */
    UCP_FEATURE_RMA           = UCS_BIT(1),  /* ucp_put_..., ucp_get_... */
    UCP_FEATURE_AMO32         = UCS_BIT(2),  /* atomics of 4 bytes */
    UCP_FEATURE_AMO64         = UCS_BIT(3),  /* atomics of 8 bytes */
    UCP_FEATURE_WAKEUP        = UCS_BIT(4),  /* ucp_worker_get_efd, arm, wait, signal */
    UCP_FEATURE_STREAM        = UCS_BIT(5),  /* ucp_stream_... */
    UCP_FEATURE_AM            = UCS_BIT(6),  /* ucp_am_... */
    UCP_FEATURE_EXPORTED_MEMH = UCS_BIT(7),  /* memory handles for others to import; not there */
    UCP_FEATURE_DEVICE        = UCS_BIT(8)   /* operations started by a GPU; not there */
};

typedef struct ucp_params {
    uint64_t                       field_mask;         /* enum ucp_params_field */
    uint64_t                       features;           /* enum ucp_feature; required */
    size_t                         request_size;       /* user's bytes in each request */
    ucp_request_init_callback_t    request_init;       /* may be NULL */
    ucp_request_cleanup_callback_t request_cleanup;    /* may be NULL */
    uint64_t                       tag_sender_mask;    /* tag bits that name the sender; a hint */
    int                            mt_workers_shared;  /* several threads use the context */
    size_t                         estimated_num_eps;  /* endpoints expected; a hint */
    size_t                         estimated_num_ppn;  /* processes of the job on this node */
    const char                     *name;              /* for messages; copied */
    size_t                         node_local_id;      /* number of this process on its node */
} ucp_params_t;

enum ucp_lib_attr_field {
    UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL = UCS_BIT(0)
};

typedef struct ucp_lib_attr {
    uint64_t          field_mask;        /* enum ucp_lib_attr_field */
    ucs_thread_mode_t max_thread_level;  /* most that a worker can be given */
} ucp_lib_attr_t;

enum ucp_context_attr_field {
    UCP_ATTR_FIELD_REQUEST_SIZE        = UCS_BIT(0),
    UCP_ATTR_FIELD_THREAD_MODE         = UCS_BIT(1),
    UCP_ATTR_FIELD_MEMORY_TYPES        = UCS_BIT(2),
    UCP_ATTR_FIELD_NAME                = UCS_BIT(3),
    UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE = UCS_BIT(4)
};

typedef struct ucp_context_attr {
    uint64_t          field_mask;    /* enum ucp_context_attr_field */
    size_t            request_size;  /* bytes the library needs before a request handle; the user's
                                      * own request_size is not in it */
    ucs_thread_mode_t thread_mode;
    uint64_t          memory_types;  /* bits (1 << ucs_memory_type_t) of usable buffers */
    char              name[UCP_ENTITY_NAME_MAX];
    size_t            device_counter_size;  /* bytes of a counter in GPU memory */
} ucp_context_attr_t;

/* ---- Worker ---- */

enum ucp_worker_params_field {
    UCP_WORKER_PARAM_FIELD_THREAD_MODE  = UCS_BIT(0),
    UCP_WORKER_PARAM_FIELD_CPU_MASK     = UCS_BIT(1),
    UCP_WORKER_PARAM_FIELD_EVENTS       = UCS_BIT(2),
    UCP_WORKER_PARAM_FIELD_USER_DATA    = UCS_BIT(3),
    UCP_WORKER_PARAM_FIELD_EVENT_FD     = UCS_BIT(4),
    UCP_WORKER_PARAM_FIELD_FLAGS        = UCS_BIT(5),
    UCP_WORKER_PARAM_FIELD_NAME         = UCS_BIT(6),
    UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT = UCS_BIT(7),
    UCP_WORKER_PARAM_FIELD_CLIENT_ID    = UCS_BIT(8)
};

typedef enum {
    UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK = UCS_BIT(0)  /* no effect: destroy never tells of them */
} ucp_worker_flags_t;

/* Events that wake a waiting worker; bits. Any event wakes it here, whichever are asked for. */
typedef enum ucp_wakeup_event_types {
    UCP_WAKEUP_RMA      = UCS_BIT(0),
    UCP_WAKEUP_AMO      = UCS_BIT(1),
    UCP_WAKEUP_TAG_SEND = UCS_BIT(2),
    UCP_WAKEUP_TAG_RECV = UCS_BIT(3),
    UCP_WAKEUP_TX       = UCS_BIT(10),  /* all that this worker sends */
    UCP_WAKEUP_RX       = UCS_BIT(11),  /* all that it receives */
    UCP_WAKEUP_EDGE     = UCS_BIT(16)   /* the descriptor is used edge-triggered */
} ucp_wakeup_event_t;

typedef struct ucp_worker_params {
    uint64_t          field_mask;    /* enum ucp_worker_params_field */
    ucs_thread_mode_t thread_mode;   /* default UCS_THREAD_MODE_SINGLE */
    ucs_cpu_set_t     cpu_mask;      /* processors the worker will run on; a hint */
    unsigned          events;        /* ucp_wakeup_event_t bits; a hint */
    void              *user_data;    /* data of event_fd's epoll events */
    int               event_fd;      /* epoll descriptor of the caller to add events to */
    uint64_t          flags;         /* ucp_worker_flags_t */
    const char        *name;         /* for messages; copied */
    size_t            am_alignment;  /* of active message data passed to callbacks, in bytes, a
                                      * power of two; 0 as 1: none */
    uint64_t          client_id;     /* passed to servers that this worker connects to */
} ucp_worker_params_t;

enum ucp_worker_attr_field {
    UCP_WORKER_ATTR_FIELD_THREAD_MODE     = UCS_BIT(0),
    UCP_WORKER_ATTR_FIELD_ADDRESS         = UCS_BIT(1),
    UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS   = UCS_BIT(2),
    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER   = UCS_BIT(3),
    UCP_WORKER_ATTR_FIELD_NAME            = UCS_BIT(4),
    UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING = UCS_BIT(5)
};

typedef enum {
    UCP_WORKER_ADDRESS_FLAG_NET_ONLY = UCS_BIT(0)  /* leave out what reaches this node only */
} ucp_worker_address_flags_t;

typedef struct ucp_worker_attr {
    uint64_t          field_mask;      /* enum ucp_worker_attr_field */
    ucs_thread_mode_t thread_mode;
    uint32_t          address_flags;   /* input: ucp_worker_address_flags_t */
    ucp_address_t     *address;        /* returned; to ucp_worker_release_address */
    size_t            address_length;  /* bytes of it */
    size_t            max_am_header;   /* longest header of ucp_am_send_nbx, in bytes */
    char              name[UCP_ENTITY_NAME_MAX];
    size_t            max_debug_string;  /* bytes that ucp_request_query may write */
} ucp_worker_attr_t;

enum ucp_worker_address_attr_field {
    UCP_WORKER_ADDRESS_ATTR_FIELD_UID = UCS_BIT(0)
};

typedef struct ucp_worker_address_attr {
    uint64_t field_mask;  /* enum ucp_worker_address_attr_field */
    uint64_t worker_uid;  /* differs between workers alive at one time */
} ucp_worker_address_attr_t;

/* ---- Endpoint ---- */

enum ucp_ep_params_field {
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS    = UCS_BIT(0),
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = UCS_BIT(1),
    UCP_EP_PARAM_FIELD_ERR_HANDLER       = UCS_BIT(2),
    UCP_EP_PARAM_FIELD_USER_DATA         = UCS_BIT(3),
    UCP_EP_PARAM_FIELD_SOCK_ADDR         = UCS_BIT(4),
    UCP_EP_PARAM_FIELD_FLAGS             = UCS_BIT(5),
    UCP_EP_PARAM_FIELD_CONN_REQUEST      = UCS_BIT(6),
    UCP_EP_PARAM_FIELD_NAME              = UCS_BIT(7),
    UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR   = UCS_BIT(8)
};

enum ucp_ep_params_flags_field {
    UCP_EP_PARAMS_FLAGS_CLIENT_SERVER  = UCS_BIT(0),  /* connect to sockaddr */
    UCP_EP_PARAMS_FLAGS_NO_LOOPBACK    = UCS_BIT(1),  /* to the worker itself: pair with the next */
    UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID = UCS_BIT(2)   /* tell the server the client_id */
};

/* What a failed peer means for the endpoint. */
typedef enum {
    UCP_ERR_HANDLING_MODE_NONE,     /* requests fail; only endpoints that were made by a socket
                                       address or a connection request call the handler */
    UCP_ERR_HANDLING_MODE_PEER,     /* requests fail, then the handler is called */
    UCP_ERR_HANDLING_MODE_FAILOVER  /* as PEER: no other lane takes over */
} ucp_err_handling_mode_t;

typedef struct ucp_err_handler {
    ucp_err_handler_cb_t cb;
    void                 *arg;
} ucp_err_handler_t;

typedef struct ucp_ep_params {
    uint64_t                field_mask;    /* enum ucp_ep_params_field */
    const ucp_address_t     *address;      /* the peer's worker; any alignment, copied */
    ucp_err_handling_mode_t err_mode;
    ucp_err_handler_t       err_handler;
    void                    *user_data;    /* replaces err_handler.arg; also in ucp_ep_query */
    unsigned                flags;         /* enum ucp_ep_params_flags_field */
    ucs_sock_addr_t         sockaddr;      /* the server's listener */
    ucp_conn_request_h      conn_request;  /* client to accept; consumed */
    const char              *name;         /* for messages; copied */
    ucs_sock_addr_t         local_sockaddr;  /* address to connect from */
} ucp_ep_params_t;

/* How to close: mode of ucp_ep_close_nb, flag of ucp_ep_close_nbx. */
enum ucp_ep_close_mode {
    UCP_EP_CLOSE_MODE_FORCE = 0,
    UCP_EP_CLOSE_MODE_FLUSH = 1
};

typedef enum {
    UCP_EP_CLOSE_FLAG_FORCE = UCS_BIT(0)
} ucp_ep_close_flags_t;

enum ucp_ep_attr_field {
    UCP_EP_ATTR_FIELD_NAME            = UCS_BIT(0),
    UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR  = UCS_BIT(1),
    UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR = UCS_BIT(2),
    UCP_EP_ATTR_FIELD_TRANSPORTS      = UCS_BIT(3),
    UCP_EP_ATTR_FIELD_USER_DATA       = UCS_BIT(4)
};

/* One lane of an endpoint. The strings live as long as the endpoint. */
typedef struct ucp_transport_entry {
    const char *transport_name;
    const char *device_name;
} ucp_transport_entry_t;

/* Lanes of an endpoint; the array is the caller's. */
typedef struct ucp_transports {
    ucp_transport_entry_t *entries;
    unsigned              num_entries;  /* in: room in entries; out: entries written */
    size_t                entry_size;   /* in: sizeof(ucp_transport_entry_t) of the caller */
} ucp_transports_t;

typedef struct ucp_ep_attr {
    uint64_t                field_mask;  /* enum ucp_ep_attr_field */
    char                    name[UCP_ENTITY_NAME_MAX];
    struct sockaddr_storage local_sockaddr;   /* of endpoints made by sockets only */
    struct sockaddr_storage remote_sockaddr;
    ucp_transports_t        transports;
    void                    *user_data;       /* as given to ucp_ep_create */
} ucp_ep_attr_t;

typedef enum ucp_ep_perf_param_field {
    UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE = UCS_BIT(0)
} ucp_ep_perf_param_field_t;

typedef enum ucp_ep_perf_attr_field {
    UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME = UCS_BIT(0)
} ucp_ep_perf_attr_field_t;

typedef struct {
    uint64_t field_mask;    /* ucp_ep_perf_param_field_t */
    size_t   message_size;  /* bytes; required */
} ucp_ep_evaluate_perf_param_t;

typedef struct {
    uint64_t field_mask;      /* ucp_ep_perf_attr_field_t */
    double   estimated_time;  /* seconds for one message */
} ucp_ep_evaluate_perf_attr_t;

/* ---- Listener ---- */

enum ucp_listener_params_field {
    UCP_LISTENER_PARAM_FIELD_SOCK_ADDR      = UCS_BIT(0),
    UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER = UCS_BIT(1),
    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER   = UCS_BIT(2)
};

/* Older form: the library makes the endpoint itself. */
typedef struct ucp_listener_accept_handler {
    ucp_listener_accept_callback_t cb;
    void                           *arg;
} ucp_listener_accept_handler_t;

typedef struct ucp_listener_conn_handler {
    ucp_listener_conn_callback_t cb;
    void                         *arg;
} ucp_listener_conn_handler_t;

/* Exactly one of the two handlers is given. */
typedef struct ucp_listener_params {
    uint64_t                      field_mask;  /* enum ucp_listener_params_field */
    ucs_sock_addr_t               sockaddr;    /* port 0: one is chosen, see ucp_listener_query */
    ucp_listener_accept_handler_t accept_handler;
    ucp_listener_conn_handler_t   conn_handler;
} ucp_listener_params_t;

enum ucp_listener_attr_field {
    UCP_LISTENER_ATTR_FIELD_SOCKADDR = UCS_BIT(0)
};

typedef struct ucp_listener_attr {
    uint64_t                field_mask;  /* enum ucp_listener_attr_field */
    struct sockaddr_storage sockaddr;    /* with the port in use */
} ucp_listener_attr_t;

enum ucp_conn_request_attr_field {
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR = UCS_BIT(0),
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID   = UCS_BIT(1)
};

typedef struct ucp_conn_request_attr {
    uint64_t                field_mask;  /* enum ucp_conn_request_attr_field */
    struct sockaddr_storage client_address;
    uint64_t                client_id;   /* 0 where the client sent none */
} ucp_conn_request_attr_t;

/* ---- Memory and remote keys ---- */

enum ucp_mem_map_params_field {
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS              = UCS_BIT(0),
    UCP_MEM_MAP_PARAM_FIELD_LENGTH               = UCS_BIT(1),
    UCP_MEM_MAP_PARAM_FIELD_FLAGS                = UCS_BIT(2),
    UCP_MEM_MAP_PARAM_FIELD_PROT                 = UCS_BIT(3),
    UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE          = UCS_BIT(4),
    UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER = UCS_BIT(5)
};

enum {
    UCP_MEM_MAP_NONBLOCK       = UCS_BIT(0),  /* pages may be pinned later; a hint */
    UCP_MEM_MAP_ALLOCATE       = UCS_BIT(1),  /* the library allocates the memory */
    UCP_MEM_MAP_FIXED          = UCS_BIT(2),  /* with ALLOCATE: exactly there, whatever was */
    UCP_MEM_MAP_SYMMETRIC_RKEY = UCS_BIT(3),  /* keys of all ranks are likely alike; a hint */
    UCP_MEM_MAP_LOCK           = UCS_BIT(4)   /* keep the pages in memory; no effect */
};

enum {
    UCP_MEM_MAP_PROT_LOCAL_READ   = UCS_BIT(0),
    UCP_MEM_MAP_PROT_LOCAL_WRITE  = UCS_BIT(1),
    UCP_MEM_MAP_PROT_REMOTE_READ  = UCS_BIT(8),
    UCP_MEM_MAP_PROT_REMOTE_WRITE = UCS_BIT(9)
};

typedef struct ucp_mem_map_params {
    uint64_t          field_mask;   /* enum ucp_mem_map_params_field */
    void              *address;
    size_t            length;       /* bytes */
    unsigned          flags;        /* UCP_MEM_MAP_... */
    unsigned          prot;         /* UCP_MEM_MAP_PROT_...; default: all of them */
    ucs_memory_type_t memory_type;  /* of the memory to allocate, or of address where known */
    const void        *exported_memh_buffer;  /* of ucp_memh_pack, to import another's memory */
} ucp_mem_map_params_t;

enum ucp_mem_attr_field {
    UCP_MEM_ATTR_FIELD_ADDRESS  = UCS_BIT(0),
    UCP_MEM_ATTR_FIELD_LENGTH   = UCS_BIT(1),
    UCP_MEM_ATTR_FIELD_MEM_TYPE = UCS_BIT(2)
};

typedef struct ucp_mem_attr {
    uint64_t          field_mask;  /* enum ucp_mem_attr_field */
    void              *address;    /* exactly as mapped, or where it was allocated */
    size_t            length;      /* bytes, at least as many as asked for */
    ucs_memory_type_t mem_type;
} ucp_mem_attr_t;

enum ucp_mem_advise_params_field {
    UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS = UCS_BIT(0),
    UCP_MEM_ADVISE_PARAM_FIELD_LENGTH  = UCS_BIT(1),
    UCP_MEM_ADVISE_PARAM_FIELD_ADVICE  = UCS_BIT(2)
};

typedef enum ucp_mem_advice {
    UCP_MADV_NORMAL = 0,
    UCP_MADV_WILLNEED  /* will be used soon: bring the pages in */
} ucp_mem_advice_t;

typedef struct ucp_mem_advise_params {
    uint64_t         field_mask;  /* enum ucp_mem_advise_params_field; all are required */
    void             *address;
    size_t           length;      /* bytes */
    ucp_mem_advice_t advice;
} ucp_mem_advise_params_t;

enum ucp_memh_pack_params_field {
    UCP_MEMH_PACK_PARAM_FIELD_FLAGS = UCS_BIT(0)
};

enum ucp_memh_pack_flags {
    UCP_MEMH_PACK_FLAG_EXPORT = UCS_BIT(0)  /* for ucp_mem_map elsewhere, not for an rkey */
};

typedef struct ucp_memh_pack_params {
    uint64_t field_mask;  /* enum ucp_memh_pack_params_field */
    uint64_t flags;       /* enum ucp_memh_pack_flags */
} ucp_memh_pack_params_t;

typedef struct ucp_memh_buffer_release_params {
    uint64_t field_mask;  /* no fields yet */
} ucp_memh_buffer_release_params_t;

typedef struct ucp_rkey_compare_params {
    uint64_t field_mask;  /* no fields yet */
} ucp_rkey_compare_params_t;

/* ---- Data types ---- */

/* The low three bits of a data type are its class. */
enum ucp_dt_type {
    UCP_DATATYPE_CONTIG     = 0,  /* count elements of one size, without gaps */
    UCP_DATATYPE_STRIDED    = 1,  /* reserved */
    UCP_DATATYPE_IOV        = 2,  /* buffer is ucp_dt_iov_t[count] */
    UCP_DATATYPE_SGL        = 4,  /* buffer is one ucp_dt_local_sgl_t of count entries */
    UCP_DATATYPE_GENERIC    = 7,  /* packed and unpacked by the user's functions */
    UCP_DATATYPE_SHIFT      = 3,
    UCP_DATATYPE_CLASS_MASK = UCS_MASK(UCP_DATATYPE_SHIFT)
};

/* Elements of _elem_size bytes (below 2^61); the type needs no destruction. */
#define ucp_dt_make_contig(_elem_size) \
    (((ucp_datatype_t)(_elem_size) << UCP_DATATYPE_SHIFT) | UCP_DATATYPE_CONTIG)
#define ucp_dt_make_iov() ((ucp_datatype_t)UCP_DATATYPE_IOV)
#define ucp_dt_make_sgl() ((ucp_datatype_t)UCP_DATATYPE_SGL)

/* One piece of an iov. The array stays valid until the operation ends. */
typedef struct ucp_dt_iov {
    void   *buffer;
    size_t length;  /* bytes */
} ucp_dt_iov_t;

enum ucp_dt_local_sgl_field {
    UCP_DT_LOCAL_SGL_FIELD_BUFFERS = UCS_BIT(0),
    UCP_DT_LOCAL_SGL_FIELD_LENGTHS = UCS_BIT(1),
    UCP_DT_LOCAL_SGL_FIELD_MEMHS   = UCS_BIT(2),
    UCP_DT_LOCAL_SGL_FIELD_COUNTS  = UCS_BIT(3),
    UCP_DT_LOCAL_SGL_FIELD_STRIDES = UCS_BIT(4)
};

/* A scatter-gather list as parallel arrays, one element an entry. */
typedef struct ucp_dt_local_sgl {
    uint64_t        field_mask;  /* enum ucp_dt_local_sgl_field */
    void * const    *buffers;
    const size_t    *lengths;    /* bytes of one block */
    const ucp_mem_h *memhs;      /* registrations of the buffers */
    const size_t    *counts;     /* blocks of the entry; default 1 */
    const size_t    *strides;    /* bytes from one block to the next */
} ucp_dt_local_sgl_t;

enum ucp_dt_remote_sgl_field {
    UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS = UCS_BIT(0),
    UCP_DT_REMOTE_SGL_FIELD_LENGTHS      = UCS_BIT(1),
    UCP_DT_REMOTE_SGL_FIELD_RKEYS        = UCS_BIT(2)
};

typedef struct ucp_dt_remote_sgl {
    uint64_t         field_mask;  /* enum ucp_dt_remote_sgl_field */
    const uint64_t   *remote_addrs;
    const size_t     *lengths;    /* bytes */
    const ucp_rkey_h *rkeys;
} ucp_dt_remote_sgl_t;

/* What a put gets for the address and the key where a list has them. */
#define UCP_REMOTE_ADDR_INVALID UINT64_MAX
#define UCP_RKEY_INVALID        NULL

/* Functions of a generic data type. For each operation: one start_..., then packed_size and calls
 * of pack or unpack by offsets that ascend without gaps, then exactly one finish; all from one
 * thread at a time. start_... gets the context of ucp_dt_create_generic and returns the state. pack
 * and unpack call no function of the worker. */
typedef struct ucp_generic_dt_ops {
    void *(*start_pack)(void *context, const void *buffer, size_t count);
    void *(*start_unpack)(void *context, void *buffer, size_t count);

    /* Bytes of the whole packed form. */
    size_t (*packed_size)(void *state);

    /* Writes packed bytes from offset on to dest, at most max_length; returns how many. dest may be
     * memory of the receiver's, who can change it: what is there is not read. */
    size_t (*pack)(void *state, size_t offset, void *dest, size_t max_length);

    /* Takes in length packed bytes of the given offset. An error becomes the request's status. They
     * may lie in memory that the sender can still change: what is relied on is read once. */
    ucs_status_t (*unpack)(void *state, size_t offset, const void *src, size_t length);

    /* Frees the state. It may destroy the data type itself. */
    void (*finish)(void *state);
} ucp_generic_dt_ops_t;

enum ucp_datatype_attr_field {
    UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE = UCS_BIT(0),
    UCP_DATATYPE_ATTR_FIELD_BUFFER      = UCS_BIT(1),
    UCP_DATATYPE_ATTR_FIELD_COUNT       = UCS_BIT(2)
};

typedef struct ucp_datatype_attr {
    uint64_t   field_mask;   /* enum ucp_datatype_attr_field */
    size_t     packed_size;  /* returned: bytes that count elements pack to */
    const void *buffer;      /* input; needed for generic and iov */
    size_t     count;        /* input; default 1 */
} ucp_datatype_attr_t;

/* ---- Operations and requests ---- */

typedef enum {
    UCP_OP_ATTR_FIELD_REQUEST         = UCS_BIT(0),
    UCP_OP_ATTR_FIELD_CALLBACK        = UCS_BIT(1),
    UCP_OP_ATTR_FIELD_USER_DATA       = UCS_BIT(2),
    UCP_OP_ATTR_FIELD_DATATYPE        = UCS_BIT(3),
    UCP_OP_ATTR_FIELD_FLAGS           = UCS_BIT(4),
    UCP_OP_ATTR_FIELD_REPLY_BUFFER    = UCS_BIT(5),
    UCP_OP_ATTR_FIELD_MEMORY_TYPE     = UCS_BIT(6),
    UCP_OP_ATTR_FIELD_RECV_INFO       = UCS_BIT(7),
    UCP_OP_ATTR_FIELD_MEMH            = UCS_BIT(8),
    UCP_OP_ATTR_FIELD_REMOTE_DATATYPE = UCS_BIT(9),
    UCP_OP_ATTR_FIELD_REMOTE          = UCS_BIT(10),
    UCP_OP_ATTR_FIELD_REMOTE_COUNT    = UCS_BIT(11),

    UCP_OP_ATTR_FLAG_NO_IMM_CMPL      = UCS_BIT(16),  /* never NULL: request and callback always */
    UCP_OP_ATTR_FLAG_FAST_CMPL        = UCS_BIT(17),  /* free the buffer early, at a copy; a hint */
    UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL   = UCS_BIT(18),  /* finish now, or do nothing and return
                                                       * UCS_ERR_NO_RESOURCE */
    UCP_OP_ATTR_FLAG_MULTI_SEND       = UCS_BIT(19)   /* one of many, rate matters; a hint */
} ucp_op_attr_t;

/* What a message's receive learned. */
struct ucp_tag_recv_info {
    ucp_tag_t sender_tag;
    size_t    length;  /* bytes that were sent */
};

/* Options of one operation; read during the call only. Fields that an operation has no use for are
 * ignored. */
typedef struct {
    uint32_t op_attr_mask;  /* ucp_op_attr_t: which fields count, and flags for all operations */
    uint32_t flags;         /* of the one operation: UCP_AM_SEND_..., UCP_STREAM_RECV_..., ... */
    void     *request;      /* caller's memory: address of the end of request_size bytes (of
                             * ucp_context_query), a multiple of 8 */

    union {
        ucp_send_nbx_callback_t         send;
        ucp_tag_recv_nbx_callback_t     recv;
        ucp_stream_recv_nbx_callback_t  recv_stream;
        ucp_am_recv_data_nbx_callback_t recv_am;
    } cb;

    ucp_datatype_t    datatype;      /* default ucp_dt_make_contig(1) */
    void              *user_data;    /* for the callback */
    void              *reply_buffer; /* result of a fetching atomic */
    ucs_memory_type_t memory_type;   /* of the buffer; detected where absent or unknown */

    union {                          /* written in the call only, where NULL or an error is
                                      * returned: it may lie on the caller's stack */
        size_t              *length;
        ucp_tag_recv_info_t *tag_info;
    } recv_info;

    ucp_mem_h      memh;             /* registration that covers the buffer */
    ucp_datatype_t remote_datatype;  /* of a put of a list ucp_dt_make_sgl(), else absent */
    const void     *remote;          /* ucp_dt_remote_sgl_t for UCP_DATATYPE_SGL */
    size_t         remote_count;     /* entries of it */
} ucp_request_param_t;

typedef enum {
    UCP_REQUEST_ATTR_FIELD_INFO_STRING      = UCS_BIT(0),
    UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE = UCS_BIT(1),
    UCP_REQUEST_ATTR_FIELD_STATUS           = UCS_BIT(2),
    UCP_REQUEST_ATTR_FIELD_MEM_TYPE         = UCS_BIT(3)
} ucp_req_attr_field;

typedef struct {
    uint64_t          field_mask;         /* ucp_req_attr_field */
    char              *debug_string;      /* buffer of the caller; zero-terminated text */
    size_t            debug_string_size;  /* its bytes; needs its mask bit too */
    ucs_status_t      status;
    ucs_memory_type_t mem_type;
} ucp_request_attr_t;

/* ---- Active messages ---- */

/* Of the handler. */
enum ucp_am_cb_flags {
    UCP_AM_FLAG_WHOLE_MSG       = UCS_BIT(0),  /* data and no descriptor, unless the sender asks
                                                * for one by UCP_AM_SEND_FLAG_RNDV */
    UCP_AM_FLAG_PERSISTENT_DATA = UCS_BIT(1)   /* data can always be kept by UCS_INPROGRESS */
};

/* Of the send. */
enum ucp_send_am_flags {
    UCP_AM_SEND_FLAG_REPLY       = UCS_BIT(0),  /* the handler gets an endpoint to answer on */
    UCP_AM_SEND_FLAG_EAGER       = UCS_BIT(1),  /* the handler gets data, at any length */
    UCP_AM_SEND_FLAG_RNDV        = UCS_BIT(2),  /* the handler gets a descriptor, at any length */
    UCP_AM_SEND_FLAG_COPY_HEADER = UCS_BIT(3),  /* the header may be reused after the call */
    UCP_AM_SEND_REPLY            = UCP_AM_SEND_FLAG_REPLY  /* older name */
};

/* In the flags of ucp_am_callback_t. */
enum ucp_cb_param_flags {
    UCP_CB_PARAM_FLAG_DATA = UCS_BIT(0)
};

enum ucp_am_handler_param_field {
    UCP_AM_HANDLER_PARAM_FIELD_ID    = UCS_BIT(0),
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS = UCS_BIT(1),
    UCP_AM_HANDLER_PARAM_FIELD_CB    = UCS_BIT(2),
    UCP_AM_HANDLER_PARAM_FIELD_ARG   = UCS_BIT(3)
};

typedef struct ucp_am_handler_param {
    uint64_t               field_mask;  /* enum ucp_am_handler_param_field */
    unsigned               id;          /* below 65536; required */
    uint32_t               flags;       /* enum ucp_am_cb_flags */
    ucp_am_recv_callback_t cb;          /* NULL takes the handler away */
    void                   *arg;
} ucp_am_handler_param_t;

/* What ucp_am_recv_param_t holds, and what data is. */
typedef enum {
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP = UCS_BIT(0),
    UCP_AM_RECV_ATTR_FLAG_DATA      = UCS_BIT(16),  /* data may be kept */
    UCP_AM_RECV_ATTR_FLAG_RNDV      = UCS_BIT(17)   /* data is a descriptor */
} ucp_am_recv_attr_t;

struct ucp_am_recv_param {
    uint64_t recv_attr;  /* ucp_am_recv_attr_t */
    ucp_ep_h reply_ep;   /* the library's; the same handle as the user's endpoint to that worker
                          * where there is one */
};

/* ---- Atomics ---- */

/* Of ucp_atomic_op_nbx. With a reply buffer each returns the value from before. */
typedef enum {
    UCP_ATOMIC_OP_ADD,
    UCP_ATOMIC_OP_SWAP,
    UCP_ATOMIC_OP_CSWAP,
    UCP_ATOMIC_OP_AND,
    UCP_ATOMIC_OP_OR,
    UCP_ATOMIC_OP_XOR,
    UCP_ATOMIC_OP_LAST
} ucp_atomic_op_t;

/* Of ucp_atomic_post, without a result. */
typedef enum {
    UCP_ATOMIC_POST_OP_ADD,
    UCP_ATOMIC_POST_OP_AND,
    UCP_ATOMIC_POST_OP_OR,
    UCP_ATOMIC_POST_OP_XOR,
    UCP_ATOMIC_POST_OP_LAST
} ucp_atomic_post_op_t;

/* Of ucp_atomic_fetch_nb, with a result. */
typedef enum {
    UCP_ATOMIC_FETCH_OP_FADD,
    UCP_ATOMIC_FETCH_OP_SWAP,
    UCP_ATOMIC_FETCH_OP_CSWAP,
    UCP_ATOMIC_FETCH_OP_FAND,
    UCP_ATOMIC_FETCH_OP_FOR,
    UCP_ATOMIC_FETCH_OP_FXOR,
    UCP_ATOMIC_FETCH_OP_LAST
} ucp_atomic_fetch_op_t;

/* ---- Streams ---- */

typedef enum {
    UCP_STREAM_RECV_FLAG_WAITALL = UCS_BIT(0)  /* end when the whole buffer is full */
} ucp_stream_recv_flags_t;

/* An endpoint on which stream data waits. */
typedef struct ucp_stream_poll_ep {
    ucp_ep_h ep;
    void     *user_data;     /* as given to ucp_ep_create */
    unsigned flags;          /* reserved */
    uint8_t  reserved[16];
} ucp_stream_poll_ep_t;

END_C_DECLS

#endif
