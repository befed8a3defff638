# Halyard: bugs planted in copies of the product's sources, to show that the simulator finds such. One line a bug;
# planted.sh runs them by number. A line that fits nothing plants nothing, and planted.sh says so.
1i extern int sim_planted_bug;
1i #define SIM_PLANTED(_n) (sim_planted_bug == (_n))
# 1: a wildcard posted later takes the message of a receive posted earlier
s/if ((selective != NULL) && (req->recv.sn > selective->recv.sn)) {/if (!SIM_PLANTED(1) \&\& (selective != NULL) \&\& (req->recv.sn > selective->recv.sn)) {/
# 2: a message overtakes those that wait for resources
s/return uct_ep_has_pending(req->send.ep->am) ||/return (!SIM_PLANTED(2) \&\& uct_ep_has_pending(req->send.ep->am)) ||/
# 3: the sender is not told that its buffer has been read
s/^    ucp_rndv_send_ats(req, UCS_OK);/    if (!SIM_PLANTED(3)) ucp_rndv_send_ats(req, UCS_OK);/
# 4: after a refused copy one byte too few is asked for
s/ask_for_rest(req, req->recv.offset, req->recv.total - req->recv.offset)/ask_for_rest(req, req->recv.offset, req->recv.total - req->recv.offset - SIM_PLANTED(4))/
# 5: the sender writes more than it claims
s/old + ((uint64_t)count << (is_sender/old + ((uint64_t)(count - (uint32_t)(is_sender \&\& SIM_PLANTED(5))) << (is_sender/
# 6: receives whose sender has gone are forgotten
s/^    ucp_peer_end_recvs(peer, (peer->status != UCS_OK)/    if (!SIM_PLANTED(6)) ucp_peer_end_recvs(peer, (peer->status != UCS_OK)/
# 7: a flush counts sends that were posted after it
s/if ((sn >= req->flush.sn) ||/if ((!SIM_PLANTED(7) \&\& (sn >= req->flush.sn)) ||/
# 8: the sender of a synchronous message that was kept gets no answer
s/if (desc->kind == UCP_TAG_MSG_EAGER_SYNC) {/if ((desc->kind == UCP_TAG_MSG_EAGER_SYNC) \&\& !SIM_PLANTED(8)) {/
# 9: a receive that has its message can be cancelled
s/^        ((req->held & UCP_REQUEST_HOLDS_EXPECTED) ||$/        (SIM_PLANTED(9) || (SIM_PLANTED(31) \&\& (req->kind == UCP_REQUEST_TAG_RECV) \&\& (req->recv.step == UCP_RECV_COMES)) || (req->held \& UCP_REQUEST_HOLDS_EXPECTED) ||/
# 10: a long announced message that was cut is reported as whole
s/^\( *\)UCS_ERR_MESSAGE_TRUNCATED : UCS_OK;/\1(SIM_PLANTED(10) ? UCS_OK : UCS_ERR_MESSAGE_TRUNCATED) : UCS_OK;/
# 11: a sender waits for an answer that the receiver said would not come
s/^    if (rtr->flags & UCP_WIRE_RTR_LAST) {/    if ((rtr->flags \& UCP_WIRE_RTR_LAST) \&\& !SIM_PLANTED(11)) {/
# 12: a synchronous send that had to wait for resources ends without its answer
s/^    } else if (is_first && (req->send.step == UCP_SEND_EAGER)) {/    } else if (is_first \&\& ((req->send.step == UCP_SEND_EAGER) || (SIM_PLANTED(12) \&\& (req->send.step == UCP_SEND_SYNC)))) {/
# 13: the words that both sides claim by are not given back
s/if (held & UCP_REQUEST_HOLDS_SYNC) {/if ((held \& UCP_REQUEST_HOLDS_SYNC) \&\& !SIM_PLANTED(13)) {/
# 14: a fence holds nothing back
s/if (ucp_rma_oldest(peer) >= fence) {/if (SIM_PLANTED(14) || (ucp_rma_oldest(peer) >= fence)) {/
# 15: a byte is skipped between the parts of what was announced on a stream
s/^    chunk->offset  += (status == UCS_OK) ? total : 0;/    chunk->offset += (status != UCS_OK) ? 0 : total + (SIM_PLANTED(15) \&\& (chunk->offset + total < announced->rts.length));/
# 16: who closes a stream does not tell the sender of what was announced
s/^        ucp_rndv_drop(ep->worker, &announced->rts, status);/        if (!SIM_PLANTED(16)) ucp_rndv_drop(ep->worker, \&announced->rts, status);/
# 17: a put that takes several messages is over with the first of them
s/if ((req->send.offset + piece->length == req->send.end) ||/if (SIM_PLANTED(17) || (req->send.offset + piece->length == req->send.end) ||/
# 18: an atomic that its owner does for a peer brings the new value
s/ucp_rma_send_end(peer, atomic.request_id, old, status);/ucp_rma_send_end(peer, atomic.request_id, old + SIM_PLANTED(18), status);/
# 19: an active message is to be answered on another endpoint than that which pairs with the sender's
s/ucp_ep_paired(peer, am->ep, UCP_EP_PAIRED_REPLY)/ucp_ep_paired(peer, am->ep ^ SIM_PLANTED(19), UCP_EP_PAIRED_REPLY)/
# 20: an active message whose turn to be fetched has come is overtaken by those behind it
s/^    if (has_turn) {/    if (has_turn \&\& !SIM_PLANTED(20)) {/
# 21: nobody looks what memory a handle is of
s/^    if ((own != NULL) &&$/    if ((own != NULL) \&\& !SIM_PLANTED(21) \&\&/
# 22: what was posted before the server has answered is forgotten
s/^        uct_ep_pending_add(peer->lanes\[UCP_LANE_AM\], pending);/        if (!SIM_PLANTED(22)) uct_ep_pending_add(peer->lanes[UCP_LANE_AM], pending);/
# 23: a blocking call inside a callback waits for what only later progress can do
s/(status == UCS_INPROGRESS) && !in_callback)/(status == UCS_INPROGRESS) \&\& (!in_callback || SIM_PLANTED(23)))/
# 24: who was told to hold its messages is not told that there is room again
s/^        if (peer->is_held) {/        if (peer->is_held \&\& !SIM_PLANTED(24)) {/
# 25: a worker sleeps although a transport has something for it
s/^        status = iface->tl->iface.event_arm(iface);/&\n        status = SIM_PLANTED(25) ? UCS_OK : status;/
# 26: who has got all by messages that could have been copies does not say so
s/^        ucp_rndv_send_ats(req, UCS_OK);/        if (!SIM_PLANTED(26)) ucp_rndv_send_ats(req, UCS_OK);/
# 27: a request that ends early does not wait for the device that still copies for it
s/^        if (ucs_unlikely(req->held & UCP_REQUEST_HOLDS_COPY)) {/        if ((req->held \& UCP_REQUEST_HOLDS_COPY) \&\& !SIM_PLANTED(27)) {/
# 28: a receive ends while the device still empties its last chunk
s/^    if ((chunks->far == UCP_DEVICE_NO_CHUNK) && !(req->held & UCP_REQUEST_HOLDS_COPY) &&/    if (((SIM_PLANTED(28) \&\& !is_off) || ((chunks->far == UCP_DEVICE_NO_CHUNK) \&\& !(req->held \& UCP_REQUEST_HOLDS_COPY))) \&\&/
# 29: a chunk that its receiver could not read counts as read
s/^    if (end.status != UCS_OK) {/    if ((end.status != UCS_OK) \&\& !SIM_PLANTED(29)) {/
# 30: a message that is sent from where it lies ends before it has left
s/^        req->send.step = UCP_SEND_ZCOPY;/        req->send.step = SIM_PLANTED(30) ? UCP_SEND_EAGER : UCP_SEND_ZCOPY;/
# 31: a receive that a message fills part by part can be cancelled (in the line of 9)
# 32: one whose sender has died amid its message never ends
s/^        ucp_request_complete_recv(req, status);/        if ((status == UCS_OK) || !SIM_PLANTED(32)) ucp_request_complete_recv(req, status);/
