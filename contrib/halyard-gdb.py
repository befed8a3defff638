"""Halyard: what the workers of a process wait for, told by gdb.

    gdb -batch -x halyard-gdb.py -ex halyard -p PID          a running process
    gdb -batch -x halyard-gdb.py -ex halyard PROGRAM CORE    what a core file has

Shows each worker of the process: its peers, endpoints and sends, the receives that are posted or
under way, and the messages that nobody has received. It only reads, so it may be used on a job that
hangs; the process stands still meanwhile. Where it was stopped amid a change, a line may be
missing or twice. `halyard N` shows up to N lines of each kind instead of 20.

It needs the debugging information of libucp and libucs (the default build has it).

SPDX-License-Identifier: BSD-3-Clause
"""
import gdb

LINES = 20    # of each kind
WALK = 100000  # entries of a list that is looked at

KINDS = {
    'UCP_REQUEST_NONE': 'no operation',
    'UCP_REQUEST_FLUSH': 'flush',
    'UCP_REQUEST_CLOSE': 'close',
    'UCP_REQUEST_PUT_LIST': 'put of a list',
    'UCP_REQUEST_TAG_SEND': 'tag send',
    'UCP_REQUEST_AM_SEND': 'active message send',
    'UCP_REQUEST_STREAM_SEND': 'stream send',
    'UCP_REQUEST_TAG_RECV': 'tag receive',
    'UCP_REQUEST_AM_RECV': 'active message receive',
    'UCP_REQUEST_STREAM_RECV': 'stream receive',
    'UCP_REQUEST_PUT': 'put',
    'UCP_REQUEST_GET': 'get',
    'UCP_REQUEST_ATOMIC': 'atomic operation',
}

SEND_STEPS = {
    'UCP_SEND_EAGER': 'waits for room on its lane',
    'UCP_SEND_RTS': 'waits for room on its lane, to be announced',
    'UCP_SEND_ZCOPY': 'is sent from where it lies',
    'UCP_SEND_SYNC': 'sent; waits until the receiver has matched it',
    'UCP_SEND_WAIT': 'announced; waits for the receiver to take it',
    'UCP_SEND_PUT': 'is written to the receiver',
    'UCP_SEND_DATA': 'is sent in pieces',
    'UCP_SEND_DEVICE': 'is copied between devices',
    'UCP_SEND_STAGED': 'passes through memory that the receiver reads',
    'UCP_SEND_GIVEN_UP': 'given up; waits until the receiver does not read it any more',
    'UCP_SEND_FENCED': 'waits for those before a fence',
    'UCP_SEND_DONE': 'ends with the next progress',
}

RECV_STEPS = {
    'UCP_RECV_POSTED': 'posted',
    'UCP_RECV_COMES': 'is filled part by part',
    'UCP_RECV_GET': 'reads from the sender',
    'UCP_RECV_BOTH': 'reads, as the sender writes',
    'UCP_RECV_LEFT': 'left to the sender, which was asked',
    'UCP_RECV_DEVICE': 'is copied between devices',
    'UCP_RECV_READ': 'is read over the network',
    'UCP_RECV_WAIT': 'waits for the sender',
}

MESSAGE_KINDS = {
    'UCP_TAG_MSG_EAGER': 'here',
    'UCP_TAG_MSG_EAGER_SYNC': 'here, its sender waits',
    'UCP_TAG_MSG_RTS': 'announced',
}

EP_STATES = {
    'UCT_EP_IDLE': 'not connected yet',
    'UCT_EP_CONNECTING': 'connecting',
    'UCT_EP_LIVE': 'connected',
    'UCT_EP_FAILED': 'failed',
}

# Every value of these has a text above (test/gdb checks it).
TEXTS = {
    'ucp_request_kind_t': KINDS,
    'ucp_send_step_t': SEND_STEPS,
    'ucp_recv_step_t': RECV_STEPS,
    'ucp_tag_msg_kind_t': MESSAGE_KINDS,
    'uct_ep_state_t': EP_STATES,
}


def name_of(value, enum):
    """The name of an enumerator, which the product may keep in a byte."""
    return str(value.cast(gdb.lookup_type(enum)))


def text_of(value, enum):
    name = name_of(value, enum)
    return TEXTS[enum].get(name, name)


def nodes(head):
    """The addresses of the links on an intrusive list."""
    end = int(head.address)
    node = head['next']
    for _ in range(WALK):
        if int(node) in (0, end):
            return
        yield int(node)
        node = node['next']


def around(address, struct, link):
    """The struct whose member `link` is at the address."""
    kind = gdb.lookup_type(struct)
    offset = next(f.bitpos // 8 for f in kind.fields() if f.name == link)
    return gdb.Value(address - offset).cast(kind.pointer()).dereference()


def entries(head, struct, link):
    """The structs on an intrusive list."""
    for node in nodes(head):
        yield around(node, struct, link)


def hash_values(table):
    slots = int(table['mask']) + 1 if int(table['count']) else 0
    for i in range(min(slots, WALK)):
        if int(table['slots'][i]['key']):
            yield table['slots'][i]['value']
    if int(table['has_zero']):
        yield table['zero_value']


def hexes(array, length):
    return ''.join('%02x' % int(array[i]) for i in range(length))


def status_of(value):
    return str(value).replace('UCS_ERR_', '').lower().replace('_', ' ')


def peer_name(peer):
    if int(peer) == 0:
        return 'a peer that is gone'
    return 'peer ' + hexes(peer['uid'], 8)


class State:
    """Prints one worker."""

    def __init__(self, lines):
        self.lines = lines

    def out(self, depth, text):
        print('  ' * depth + text)

    def some(self, depth, rows, title):
        """At most `lines` of the rows, below a title with their number; nothing without any."""
        rows = list(rows)
        if not rows:
            return
        self.out(depth, '%s: %d' % (title, len(rows)))
        for row in rows[:self.lines]:
            self.out(depth + 1, row)
        if len(rows) > self.lines:
            self.out(depth + 1, '... %d more' % (len(rows) - self.lines))

    def worker(self, worker):
        context = worker['context']
        owner = int(worker['lock']['owner'])
        name = worker['name'].string()
        self.out(0, 'worker %#x%s, known to its peers as %s%s' % (
            int(worker.address), ' "%s"' % name if name != hex(int(worker.address)) else '',
            hexes(worker['uid'], 8),
            ', inherited from a parent' if int(worker['is_inherited']) else ''))
        self.out(1, 'transports: ' + ' '.join(
            context['tls'][i]['tl']['name'].string() for i in range(int(context['num_tls']))
            if int(worker['tls'][i]['iface'])))
        names = gdb.lookup_global_symbol('ucp_counters_class').value()['counters']
        counts = ['%s %d' % (names[i].string(), int(worker['counters'][i]))
                  for i in range(worker['counters'].type.range()[1] + 1)
                  if int(worker['counters'][i])]
        self.out(1, 'so far: ' + (', '.join(counts) or 'nothing'))
        if owner:
            self.out(1, 'its lock is held by ' + self.thread(owner))
        if int(worker['is_armed']):
            self.out(1, 'it is armed: the program may sleep until its descriptor is readable')
        for value in hash_values(worker['peers']):
            pointer = gdb.lookup_type('ucp_peer_t').pointer()
            self.peer(gdb.Value(int(value)).cast(pointer).dereference())
        for ep in entries(worker['eps'], 'ucp_ep_t', 'list'):
            self.ep(ep)
        self.some(1, (self.flush(r) for r in entries(worker['flushes'], 'ucp_request_t', 'list')),
                  'flushes and closes under way')
        self.tags(worker['tag_match'])
        self.some(1, ('%#x: tag %#x, %d bytes: %s' % (
            int(r.address), int(r['info']['sender_tag']), int(r['info']['length']),
            text_of(r['recv']['step'], 'ucp_recv_step_t'))
                      for r in entries(worker['coming'], 'ucp_request_t', 'list')),
                  'receives whose sender is writing')
        self.some(1, ('%d bytes' % int(k['length'])
                      for k in entries(worker['kept'], 'ucp_kept_t', 'list')),
                  'data of active messages that the program keeps or has to come back for')

    def thread(self, mark):
        """The thread whose mark (ucp_thread_mark) this is."""
        chosen = gdb.selected_thread()
        name = 'a thread that has ended'
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            try:
                if int(gdb.parse_and_eval('&ucp_thread_mark')) == mark:
                    name = 'thread %d (%d)' % (thread.num, thread.ptid[1] or thread.ptid[0])
            except gdb.error:
                pass
        chosen.switch()
        return name

    def peer(self, peer):
        context = peer['worker']['context']
        lanes = []
        for role, use in enumerate(('messages', 'copies', 'device memory')):
            ep = peer['lanes'][role]
            if int(ep):
                tl = context['tls'][int(peer['lane_tl'][role])]['tl']['name'].string()
                waiting = len(list(nodes(ep['pending'])))
                lanes.append('%s by %s (%s%s)' % (
                    use, tl, text_of(ep['state'], 'uct_ep_state_t'),
                    ', %d wait for room' % waiting if waiting else ''))
        state = []
        if str(peer['status']) != 'UCS_OK':
            state.append('failed: ' + status_of(peer['status']))
        if int(peer['is_gone']):
            state.append('it has left')
        if not int(peer['is_heard']):
            state.append('nothing has come from it yet')
        if int(peer['is_holding']):
            state.append('it has asked us to announce messages, as it keeps many')
        if int(peer['is_held']):
            state.append('we have asked it to announce messages, as we keep many')
        if int(peer['num_controls']):
            state.append('%d control messages wait for room' % int(peer['num_controls']))
        self.out(1, '%s: %s' % (peer_name(peer.address), '; '.join(lanes + state)))
        self.some(2, (self.recv(r) for r in entries(peer['recvs'], 'ucp_request_t', 'list')),
                  'receives under way from it')

    def ep(self, ep):
        state = []
        if int(ep['is_closing']):
            state.append('closing')
        if int(ep['is_internal']):
            state.append("the library's own")
        self.out(1, 'endpoint %#x to %s%s' % (
            int(ep.address), peer_name(ep['peer']), ''.join(', ' + s for s in state)))
        self.some(2, (self.send(r) for r in entries(ep['requests'], 'ucp_request_t', 'list')),
                  'sends in flight')
        stream = ep['stream']
        self.some(2, ('%#x: room for %d bytes, %d came' % (
            int(r.address), int(r['length']), int(r['recv']['received']))
                      for r in entries(stream['recvs'], 'ucp_request_t', 'list')),
                  'stream receives')
        unread = list(entries(stream['chunks'], 'ucp_kept_t', 'list'))
        if unread:
            self.out(2, 'unread data of its stream: %d pieces' % len(unread))

    def send(self, req):
        text = '%#x: %s' % (int(req.address), text_of(req['kind'], 'ucp_request_kind_t'))
        if name_of(req['kind'], 'ucp_request_kind_t') == 'UCP_REQUEST_TAG_SEND':
            text += ' of tag %#x' % int(req['info']['sender_tag'])
        return '%s, %d bytes: %s' % (text, int(req['length']),
                                     text_of(req['send']['step'], 'ucp_send_step_t'))

    def recv(self, req):
        return '%#x: %s: %s, %d of %d bytes are here' % (
            int(req.address), text_of(req['kind'], 'ucp_request_kind_t'),
            text_of(req['recv']['step'], 'ucp_recv_step_t'), int(req['recv']['received']),
            int(req['recv']['total']))

    def flush(self, req):
        ep = req['flush']['ep']
        what = text_of(req['kind'], 'ucp_request_kind_t')
        return '%#x: %s of %s waits for %d operations' % (
            int(req.address), what, 'endpoint %#x' % int(ep) if int(ep) else 'the worker',
            int(req['flush']['remaining']))

    def tags(self, match):
        posted = [r for r in entries(match['wild'], 'ucp_request_t', 'list')]
        for i in range(1 << (64 - int(match['shift']))):
            posted += entries(match['expected'][i], 'ucp_request_t', 'list')
        posted.sort(key=lambda r: int(r['recv']['sn']))
        self.some(1, ('%#x: tag %#x, mask %#x, room for %d bytes' % (
            int(r.address), int(r['info']['sender_tag']), int(r['recv']['mask']), int(r['length']))
                      for r in posted), 'receives that wait for a message')
        self.some(1, (self.message(d)
                      for d in entries(match['arrival'], 'ucp_recv_desc_t', 'arrival')),
                  'messages that nobody has received')

    def message(self, desc):
        text = 'tag %#x, %d bytes: %s' % (
            int(desc['tag']), int(desc['length']), text_of(desc['kind'], 'ucp_tag_msg_kind_t'))
        if name_of(desc['kind'], 'ucp_tag_msg_kind_t') == 'UCP_TAG_MSG_EAGER':
            return text  # it does not tell its sender
        return text + ', from peer ' + int(desc['worker_id']).to_bytes(8, 'little').hex()


def workers():
    """All that the process has, found by the list of what a fork takes away."""
    if gdb.selected_inferior().pid == 0:
        raise gdb.GdbError('no process and no core file here: if ptrace was refused, run gdb as '
                           'root, or set /proc/sys/kernel/yama/ptrace_scope to 0')
    head = gdb.lookup_static_symbol('ucs_fork_watches')
    if head is None:
        raise gdb.GdbError('no library of Halyard with debugging information in this process')
    for watch in entries(head.value(), 'ucs_fork_watch_t', 'list'):
        if 'ucp_worker_in_child' in str(watch['in_child']):
            yield around(int(watch.address), 'ucp_worker_t', 'fork')


class Halyard(gdb.Command):
    """What the workers of this process wait for: halyard [LINES]"""

    def __init__(self):
        super().__init__('halyard', gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        if argument and not argument.isdigit():
            raise gdb.GdbError('usage: halyard [LINES of each kind]')
        state = State(int(argument) if argument else LINES)
        count = 0
        for worker in workers():
            count += 1
            try:
                state.worker(worker)
            except gdb.MemoryError as error:
                print('  (the rest is not readable: %s)' % error)
        if count == 0:
            print('no worker in this process')


Halyard()
