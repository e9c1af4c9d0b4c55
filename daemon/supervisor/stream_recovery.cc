#include "daemon/supervisor/stream_recovery.h"

#include <algorithm>
#include <utility>

#include "shared/base/log.h"
#include "shared/feed/make_stream_feed.h"
#include "shared/feed/worker_process.h"

namespace stoker::supervisor {

Status StreamRecovery::open() {
  STOKER_ASSIGN_OR_RETURN(states_, feed::StreamStateTable::create(ring_.slots(), supply_.capacity,
                                                                  supply_.history_bytes));
  restore_history();
  return {};
}

std::vector<int> StreamRecovery::pass_to(feed::WorkerArguments& arguments) const {
  constexpr int kFirstFd = feed::WorkerProcess::kFirstFd + 2;  // behind ring and quarantine table
  std::vector<int> fds{states_->fd()};
  arguments.fingerprint = supply_.fingerprint;
  arguments.stream_fd = kFirstFd;
  arguments.input_name = supply_.input_name;
  arguments.producer_users = supply_.producer_users;
  if (supply_.input_fd < 0) return fds;
  arguments.input_fd = kFirstFd + 1;
  fds.push_back(supply_.input_fd);
  return fds;
}

// The worker's tickets are requeued, so the batches before the first one that is not published are
// complete.
Status StreamRecovery::prepare() const {
  const uint64_t next = ring_.first_unpublished();
  std::optional<feed::StreamState> state = supply_.state;
  if (next != supply_.first_ticket) {
    STOKER_ASSIGN_OR_RETURN(state, states_->read(next - 1));
  }
  if (state && !state->has_started()) state.reset();
  // The worker compares it with the history itself.
  if (supply_.has_producers) return states_->set_initial(state);
  if (state && supply_.input_fd >= 0) continue_input(*state);
  // The worker before had no batch, and read more than is held.
  const auto history = states_->maybe_history();
  if (!state && history && history->range().begin > 0) {
    log_warn(
        "stream records lost",
        {{"source", supply_.input_name},
         {"reason",
          "they were read before the first batch, and stream.save_elements_mib is too small to "
          "hold them"}});
    history->assign(0, {}, 0);
  }
  return states_->set_initial(state);
}

// After a resume.
void StreamRecovery::restore_history() {
  const auto history = states_->maybe_history();
  auto saved = std::exchange(supply_.history, std::nullopt);
  if (!history || !saved) return;
  if (supply_.has_producers) return feed::restore_producer_history(*saved, *history);
  const uint64_t whole = std::max(saved->complete, saved->begin) - saved->begin;
  if (!supply_.continues_history && saved->bytes.size() > whole) {
    log_warn("incomplete stream record dropped",
             {{"source", supply_.input_name}, {"bytes", saved->bytes.size() - whole}});
    saved->bytes.resize(whole);
  }
  history->assign(saved->begin, saved->bytes, saved->complete);
}

// A source that cannot be read again, from its history. Another program can continue where the one
// before has ended.
void StreamRecovery::continue_input(feed::StreamState& state) const {
  const auto history = states_->maybe_history();
  if (state.sources.empty()) {  // it has ended
    state.elements.clear();
    state.next_source = 0;
    if (history) history->assign(0, {}, 0);
    return;
  }
  const size_t queued = state.elements.size();
  for (feed::StreamState::Source& source : state.sources) source.ended = false;
  uint64_t& next = state.sources.front().next.offset;
  const auto held = history ? history->range() : data::stream::ByteHistory::Range();
  const bool has_input = history && state.sources.size() == 1;
  const bool has_rest = has_input && next >= held.begin && next <= held.end;
  if (has_rest) {
    std::erase_if(state.elements,
                  [&](const auto& element) { return element.at.offset < held.begin; });
  } else {
    state.elements.clear();
    // With what was read of the first record that is not lost, so that it is found.
    if (has_input && next < held.begin && held.complete >= held.begin)
      next = held.complete;
    else if (history)
      history->assign(next, {}, next);
  }
  if (has_rest && state.elements.size() == queued) return;
  log_warn("stream records lost",
           {{"source", supply_.input_name},
            {"queued_records", queued - state.elements.size()},
            {"reason",
             "the source cannot be read again, and stream.save_elements_mib is too small; the "
             "stream continues with the next records"}});
}

// Bytes that the worker had read when it was killed, and that are not in the history. What was read of
// the record before them must not be continued with another one. An error ends the run.
Status StreamRecovery::check_input() const {
  const auto history = states_->maybe_history();
  if (!history || !history->is_reading()) return {};
  auto held = feed::copy_history(*history, 0);
  held.bytes.resize(std::max(held.complete, held.begin) - held.begin);
  history->assign(held.begin, held.bytes, held.complete);
  const std::string what = "a worker process was killed while it read";
  log_warn("stream records lost", {{"source", supply_.input_name}, {"reason", what}});
  if (supply_.finds_records) return {};
  return Status(StatusCode::kIoError, supply_.input_name + ": " + what +
                                          ", and the next record cannot be found; start stokerd "
                                          "again, and a producer that begins with a record");
}

void StreamRecovery::forget_unsaved_ends() const {
  if (!states_ || !supply_.has_producers || !states_->is_receiving()) return;
  if (const auto history = states_->maybe_history()) feed::forget_ends_of_producers(*history);
}

bool StreamRecovery::end() {
  const auto end = states_->end_ticket();
  if (!end) return false;
  const Status ended = ring_.end_at(*end);
  if (!ended.ok()) log_warn("end of the stream rejected", {{"reason", ended.message()}});
  return ended.ok();
}

std::optional<feed::StreamHistory> StreamRecovery::history_of(const feed::StreamState& state,
                                                              bool is_read) const {
  const auto history = states_ ? states_->maybe_history() : std::nullopt;
  if (!history) return std::nullopt;
  const bool is_last = !is_read && !history->is_reading();
  if (supply_.has_producers) return feed::copy_producer_history(state, *history, is_last);
  const auto first = feed::first_needed(state);
  if (!first) return std::nullopt;
  feed::StreamHistory copy = feed::copy_history(*history, *first);
  copy.is_last = is_last;
  return copy;
}

Result<feed::StreamState> StreamRecovery::end_state() const {
  const auto end = states_->end_ticket();
  if (!end) return Status(StatusCode::kCorrupt, "the stream has not ended");
  return states_->read(*end);
}

}  // namespace stoker::supervisor
