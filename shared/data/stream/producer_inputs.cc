#include "shared/data/stream/producer_inputs.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "shared/base/log.h"
#include "shared/data/stream/producer_handshake.h"
#include "shared/data/stream/producer_history.h"

namespace stoker::data::stream {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kEnded = "the stream has ended";
constexpr size_t kMaxPart = size_t{256} << 10;  // of one read of a connection

// Appends of several readers.
struct SharedHistory {
  std::mutex mutex;
  std::optional<ProducerHistory> maybe_history;
  std::map<std::string, uint64_t> ends;  // of what each producer has sent

  void append(const std::string& name, uint64_t offset, std::span<const std::byte> bytes) {
    if (!maybe_history) return;
    const std::lock_guard lock(mutex);
    maybe_history->append(name, offset, bytes);
    ends[name] = offset + bytes.size();
  }
  // Nothing of what it has sent is missing.
  void end(const std::string& name) {
    if (!maybe_history) return;
    const std::lock_guard lock(mutex);
    maybe_history->append(name, ends[name], {});
  }
  // It sends from there on, also if more was received of a record without its end.
  void open(const std::string& name, uint64_t offset) {
    const std::lock_guard lock(mutex);
    ends[name] = offset;
  }
  // Nothing more is sent.
  void end_stream() {
    if (!maybe_history) return;
    const std::lock_guard lock(mutex);
    for (const auto& [name, end] : ends) maybe_history->append(name, end, {});
    maybe_history->append(ProducerHistory::kEndOfStream, 0, {});
  }
};

// A process that has connected.
struct Connection {
  std::shared_ptr<const UniqueFd> descriptor;
  std::string process;   // for messages
  std::string received;  // and not used yet
  Clock::time_point deadline = {};
  bool can_replay = true;

  int fd() const { return descriptor->get(); }
};

// Whether the producer will send nothing more.
bool has_hung_up(int fd) {
  pollfd entry{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

// False: the producer has gone, or its buffer is full.
bool send_line(const UniqueFd& connection, std::string_view line) {
  const ssize_t sent =
      ::send(connection.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(line.size());
}

// Reads what is there; 0 at the end, nullopt if nothing is there. A producer that was killed, or that
// does not read the reply, resets the connection.
std::optional<size_t> receive(int fd, std::span<std::byte> out) {
  for (;;) {
    const ssize_t got = ::read(fd, out.data(), out.size());
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    if (errno != EINTR) return size_t{0};
  }
}

class ConnectionInput final : public ByteInput {
 public:
  ConnectionInput(const std::string& producer, Connection connection, uint64_t offset,
                  std::shared_ptr<SharedHistory> history)
      : ByteInput("producer " + producer + " (" + connection.process + ")"),
        producer_(producer),
        connection_(std::move(connection)),
        history_(std::move(history)),
        received_(offset) {
    save(std::as_bytes(std::span(connection_.received)));
  }

  uint64_t identity() const override { return connection_.can_replay ? kReplayingProducer : 0; }

 private:
  Result<size_t> read_available(std::span<std::byte> out, const std::stop_token& stop) override {
    out = out.first(std::min(out.size(), kMaxPart));
    std::string& rest = connection_.received;
    if (!rest.empty()) {
      const size_t count = std::min(out.size(), rest.size());
      std::memcpy(out.data(), rest.data(), count);
      rest.erase(0, count);
      return count;
    }
    const int fd = connection_.fd();
    while (!stop.stop_requested()) {
      if (const auto got = receive(fd, out)) {
        save(out.first(*got));
        return *got;
      }
      waiting_.wait(fd);
    }
    return stopped_reading(name());
  }

  void save(std::span<const std::byte> bytes) {
    if (!bytes.empty()) history_->append(producer_, received_, bytes);
    received_ += bytes.size();
  }

  const std::string producer_;
  Connection connection_;
  const std::shared_ptr<SharedHistory> history_;
  uint64_t received_;  // offset behind what is in the history
};

// What was received before this process started.
class HistoryInput final : public ByteInput {
 public:
  HistoryInput(const std::string& producer, std::vector<ProducerHistory::Part> parts,
               uint64_t offset, bool can_replay, std::shared_ptr<const SharedHistory> history)
      : ByteInput("producer " + producer + " (saved)"),
        parts_(std::move(parts)),
        can_replay_(can_replay),
        history_(std::move(history)),
        at_(offset) {}

  uint64_t identity() const override { return can_replay_ ? kReplayingProducer : 0; }

 private:
  Result<size_t> read_available(std::span<std::byte> out,
                                const std::stop_token& /*stop*/) override {
    while (next_part_ < parts_.size() && parts_[next_part_].end() <= at_) ++next_part_;
    if (next_part_ == parts_.size() || parts_[next_part_].offset > at_) return size_t{0};
    const ProducerHistory::Part* const part = &parts_[next_part_];
    out = out.first(std::min<uint64_t>(out.size(), part->end() - at_));
    if (!history_->maybe_history->copy(part->at + (at_ - part->offset), out)) {
      log_warn("stream history too small",
               {{"source", name()},
                {"offset", at_},
                {"reason",
                 "what other producers have sent replaced it before it was read; "
                 "increase stream.save_elements_mib"}});
      return size_t{0};
    }
    at_ += out.size();
    return out.size();
  }

  const std::vector<ProducerHistory::Part> parts_;  // contiguous, ascending
  const bool can_replay_;
  const std::shared_ptr<const SharedHistory> history_;
  uint64_t at_;
  size_t next_part_ = 0;  // those before end at or before at_
};

// Of lines about connections, which any user of the group can make all the time: a line a second, and
// kBurst of them together.
class LineLimit {
 public:
  // Number of lines that were suppressed since the last one; nullopt: this one is, too.
  std::optional<uint64_t> pass() {
    const auto now = Clock::now();
    next_ = std::max(next_, now - (kBurst - 1) * kInterval);
    if (next_ > now) {
      ++suppressed_;
      return std::nullopt;
    }
    next_ += kInterval;
    return std::exchange(suppressed_, uint64_t{0});
  }

 private:
  static constexpr int kBurst = 20;
  static constexpr std::chrono::seconds kInterval{1};
  Clock::time_point next_;  // of the next line, if there is no burst
  uint64_t suppressed_ = 0;
};

class ProducerInputs final : public StreamInputs {
 public:
  ProducerInputs(InputDescriptor listening, ProducerOptions options,
                 std::optional<ByteHistory> maybe_history, std::vector<KnownProducer> known)
      : StreamInputs({.starts_at_offset = true, .can_continue = true}),
        options_(std::move(options)),
        listening_(std::move(listening)),
        history_(std::make_shared<SharedHistory>()) {
    if (maybe_history) history_->maybe_history.emplace(*maybe_history);
    if (maybe_history) saved_ = history_->maybe_history->by_name();
    for (KnownProducer& producer : known)
      producers_[producer.name] = {
          .next = producer.next, .is_continued = true, .can_replay = producer.can_replay};
    for (const KnownProducer& producer : known) add_saved(producer.name);
    const bool had_ended = saved_.erase(std::string(ProducerHistory::kEndOfStream)) > 0;
    // What was received before the first batch.
    for (const auto& [name, parts] : saved_)
      if (!producers_.contains(name)) add_saved(name);
    for (const auto& [name, producer] : producers_) {
      const auto parts = saved_.find(name);
      history_->ends[name] =
          std::max(producer.next.offset, parts == saved_.end() ? 0 : parts->second.back().end());
    }
    has_ended_ = had_ended && has_all_that_was_sent();
    if (has_ended_) log_info("stream end requested", {{"process", "of an earlier connection"}});
  }

  Result<std::optional<Item>> next(const std::stop_token& stop) override {
    while (!stop.stop_requested()) {
      if (auto item = take_ready()) return item;
      if (has_ended_ && !has_ready()) {
        for (const Connection& connection : hellos_) reject(connection, kEnded, false);
        hellos_.clear();
        const std::lock_guard lock(mutex_);
        names_ended_ = true;
        end_when_read();
        return std::optional<Item>();
      }
      wait();
      accept_connections();
      read_hellos();
    }
    return stopped_reading(listening_.name);
  }

  Result<std::unique_ptr<ByteInput>> open(const std::string& name,
                                          const StreamPosition& from) override {
    const std::lock_guard lock(mutex_);
    Producer& producer = producers_[name];
    // Elements of the queue are read again before the first input is opened.
    if (!producer.is_open || std::exchange(producer.has_saved, false))
      return open_saved(name, producer, from);
    assert(producer.connection && "next() has not returned the name");
    Connection connection = std::move(*producer.connection);
    producer.connection.reset();
    if (const auto suppressed = connected_lines_.pass())
      log_info("stream producer connected", {{"producer", name},
                                             {"process", connection.process},
                                             {"record", from.record},
                                             {"offset", from.offset},
                                             {"suppressed", *suppressed}});
    const bool cannot_replay =
        std::exchange(producer.is_continued, false) && !connection.can_replay;
    if (std::exchange(producer.has_gap, false) && cannot_replay) warn_of_loss(name, from.offset);
    if (cannot_replay && !producer.is_whole)
      log_warn("stream records possibly lost",
               {{"producer", name},
                {"after_record", from.record},
                {"reason", "the producer cannot send again what this process did not receive"}});
    producer.can_replay = connection.can_replay;
    producer.invalid.clear();
    producer.reader = connection.descriptor;
    producer.process = connection.process;
    history_->open(name, from.offset);
    // If it has gone, the end follows.
    (void)send_line(*connection.descriptor, hello_reply(from.offset, from.record));
    return std::unique_ptr<ByteInput>(
        std::make_unique<ConnectionInput>(name, std::move(connection), from.offset, history_));
  }

  void close(const std::string& name, const StreamPosition& at, const Status& error) override {
    const std::lock_guard lock(mutex_);
    acknowledge(name, at, error);
    end_when_read();
  }

  // Ends the connections first: what a producer could send afterwards would be lost.
  void save_unread() override {
    const std::lock_guard lock(mutex_);
    if (!history_->maybe_history) return;
    std::vector<std::byte> bytes(kMaxPart);
    for (const auto& [name, producer] : producers_) {
      if (!producer.reader || producer.can_replay) continue;
      const int fd = producer.reader->get();
      if (::shutdown(fd, SHUT_RD) != 0) continue;
      while (const size_t got = receive(fd, bytes).value_or(0))
        history_->append(name, history_->ends[name], std::span(bytes).first(got));
      history_->end(name);
    }
  }

  bool is_waiting() const override { return waiting_.is_waiting(); }
  uint64_t polls() const override { return waiting_.polls(); }

 private:
  struct Producer {
    StreamPosition next = {};   // at the start of this process
    bool is_continued = false;  // has no connection since then
    bool can_replay = false;
    bool has_saved = false;  // bytes in the history to be read before a connection
    bool has_gap = false;    // the history begins behind the next byte
    bool is_whole = false;   // the history has all that it had sent
    bool is_open = false;    // next() has returned it
    std::optional<Connection> connection = {};    // that waits for a reader
    std::shared_ptr<const UniqueFd> reader = {};  // of the connection that is read
    std::string process = {};                     // of that connection
    std::string invalid = {};  // why what it sends again cannot be used; empty: it can
    // Whether what is read before another connection ends without its producer.
    bool is_ending() const {
      return has_saved || (is_open && is_continued) || (reader && has_hung_up(reader->get()));
    }
  };

  void acknowledge(const std::string& name, const StreamPosition& at, const Status& error) {
    Producer& producer = producers_[name];
    producer.is_open = false;
    if (!error.ok())
      producer.invalid = "no record can be found in what producer " + name + " sent from offset " +
                         std::to_string(at.offset) + " on; use another name: " + error.message();
    const auto reader = std::exchange(producer.reader, nullptr);
    if (!reader) return;
    if (error.ok()) history_->end(name);
    if (const auto suppressed = disconnected_lines_.pass())
      log_info("stream producer disconnected", {{"producer", name},
                                                {"process", producer.process},
                                                {"record", at.record},
                                                {"offset", at.offset},
                                                {"suppressed", *suppressed}});
    // If it has gone, it asks again when it connects.
    (void)send_line(*reader, error.ok() ? hello_reply(at.offset, at.record)
                                        : hello_error(producer.invalid, !producer.can_replay));
  }

  // ---- End of the stream

  // Of a process before this one, which has ended the stream. Otherwise, producers must be able to send
  // the rest again.
  bool has_all_that_was_sent() const {
    for (const auto& [name, producer] : producers_) {
      const auto parts = saved_.find(name);
      if (parts != saved_.end() && parts->second.front().offset <= producer.next.offset) continue;
      log_warn("stream history too small",
               {{"source", "producer " + name},
                {"offset", producer.next.offset},
                {"reason",
                 "what it has sent from there on was replaced in memory before it was used; start "
                 "it again, and end the stream again"}});
      return false;
    }
    return true;
  }

  // When all records are in the queue. A process after this one then ends, too.
  void end_when_read() {
    const auto is_open = [](const auto& entry) { return entry.second.is_open; };
    if (!names_ended_ || std::ranges::any_of(producers_, is_open)) return;
    history_->end_stream();
    accept_end_requests();
    for (const Connection& connection : end_requests_)
      (void)send_line(*connection.descriptor, end_reply());
    end_requests_.clear();
  }

  // ---- Saved bytes

  static void warn_of_loss(const std::string& name, uint64_t offset) {
    log_warn("stream history too small",
             {{"source", "producer " + name},
              {"offset", offset},
              {"reason",
               "what it has sent from there on was replaced in memory before it was used, and is "
               "lost; increase stream.save_elements_mib"}});
  }

  void add_saved(const std::string& name) {
    const auto parts = saved_.find(name);
    if (parts == saved_.end()) return;
    Producer& producer = producers_[name];
    const uint64_t next = producer.next.offset;
    producer.is_continued = true;
    producer.has_gap = parts->second.front().offset > next;
    if (producer.has_gap) return;
    producer.is_whole = parts->second.back().bytes == 0;
    if (parts->second.back().end() <= next) return;
    producer.has_saved = true;
    ready_.push_back(name);
  }

  std::unique_ptr<ByteInput> open_saved(const std::string& name, const Producer& producer,
                                        const StreamPosition& from) {
    const auto found = saved_.find(name);
    return std::make_unique<HistoryInput>(
        name, found == saved_.end() ? std::vector<ProducerHistory::Part>() : found->second,
        from.offset, producer.can_replay, history_);
  }

  // ---- Names

  std::optional<Item> take_ready() {
    const std::lock_guard lock(mutex_);
    const auto name = std::ranges::find_if(
        ready_, [this](const std::string& ready) { return !producers_.at(ready).is_open; });
    if (name == ready_.end()) return std::nullopt;
    Item item{.name = *name};
    ready_.erase(name);
    producers_.at(item.name).is_open = true;
    return item;
  }
  bool has_ready() const {
    const std::lock_guard lock(mutex_);
    return !ready_.empty();
  }

  // ---- Connections

  void wait() {
    std::vector<pollfd> descriptors;
    descriptors.push_back({.fd = has_ended_ ? -1 : listening_.fd.get(), .events = POLLIN});
    for (const Connection& connection : hellos_)
      descriptors.push_back({.fd = connection.fd(), .events = POLLIN});
    waiting_.wait(descriptors);
  }

  void accept_connections() {
    // Limited, because a user whose connections are rejected can make more all the time.
    for (size_t i = 0; i < options_.max_hellos; ++i) {
      if (has_ended_) return;
      UniqueFd fd(::accept4(listening_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid()) {
        const int error = errno;
        if (error == EINTR || error == ECONNABORTED) continue;
        if (error == EAGAIN || error == EWOULDBLOCK) return;
        // Such as of descriptors. The next attempt is after the next wait.
        log_rejection("?", Status::from_errno(error, "accept").message());
        waiting_.wait(-1);
        return;
      }
      auto connection = admit(std::move(fd));
      if (!connection) continue;
      if (hellos_.size() >= options_.max_hellos) {  // the oldest has had the most time
        reject(hellos_.front(), "no first line, and too many others connect", true);
        hellos_.erase(hellos_.begin());
      }
      hellos_.push_back(*std::move(connection));
    }
  }

  // nullopt: rejected.
  std::optional<Connection> admit(UniqueFd fd) {
    Connection connection{.descriptor = std::make_shared<const UniqueFd>(std::move(fd)),
                          .deadline = Clock::now() + options_.hello_timeout};
    const auto peer = peer_of(connection.fd());
    if (peer) connection.process = peer->process;
    if (peer && is_permitted(peer->uid)) return connection;
    reject(connection, "not permitted: neither the owner of the run, nor in control.operators",
           false);
    return std::nullopt;
  }

  // Of processes that have connected since next() returned the end, which is not called any more.
  // Requires mutex_.
  void accept_end_requests() {
    for (size_t i = 0; i < options_.max_hellos; ++i) {
      UniqueFd fd(::accept4(listening_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid()) return;
      auto connection = admit(std::move(fd));
      if (!connection) continue;
      std::array<char, kMaxHelloBytes> bytes;
      const size_t got =
          receive(connection->fd(), std::as_writable_bytes(std::span(bytes))).value_or(0);
      const std::string_view received(bytes.data(), got);
      const auto hello = parse_hello(received.substr(0, received.find('\n')));
      if (hello && hello->ends_stream)
        end_requests_.push_back(*std::move(connection));
      else
        reject(*connection, kEnded, false);
    }
  }

  bool is_permitted(uid_t user) const {
    return user == 0 || user == ::geteuid() || std::ranges::count(options_.users, user) > 0;
  }

  void read_hellos() {
    std::erase_if(hellos_, [this](Connection& connection) { return advance(connection); });
  }

  // True: there is nothing left to do with it.
  bool advance(Connection& connection) {
    std::array<std::byte, kMaxHelloBytes> bytes;
    const auto got = receive(connection.fd(), bytes);
    if (got) connection.received.append(reinterpret_cast<const char*>(bytes.data()), *got);
    const size_t end = connection.received.find('\n');
    if (end < kMaxHelloBytes) {
      const std::string line = connection.received.substr(0, end);
      connection.received.erase(0, end + 1);
      accept_hello(connection, line);
      return true;
    }
    if (connection.received.size() >= kMaxHelloBytes)
      reject(connection,
             "the first line has more than " + std::to_string(kMaxHelloBytes) + " bytes", false);
    else if (got == size_t{0})
      log_rejection(connection.process, "closed before the first line");
    else if (has_ended_)
      reject(connection, kEnded, false);
    else if (Clock::now() >= connection.deadline)
      reject(connection, "no first line", true);
    else
      return false;
    return true;
  }

  void accept_hello(Connection& connection, const std::string& line) {
    const auto hello = parse_hello(line);
    if (!hello) return reject(connection, hello.status().message(), false);
    if (has_ended_ && !hello->ends_stream) return reject(connection, kEnded, false);
    const std::lock_guard lock(mutex_);
    if (hello->ends_stream) {
      if (!std::exchange(has_ended_, true))
        log_info("stream end requested", {{"process", connection.process}});
      end_requests_.push_back(std::move(connection));
      return;
    }
    const auto found = producers_.find(hello->name);
    if (found == producers_.end() && producers_.size() >= options_.max_names)
      return reject(
          connection,
          "the stream has " + std::to_string(options_.max_names) + " producers; use a name again",
          false);
    if (found != producers_.end()) {
      const Producer& known = found->second;
      if (!known.invalid.empty() && hello->can_replay)
        return reject(connection, known.invalid, false);
      if (known.connection || (known.is_open && !known.is_ending()))
        return reject(connection, "producer " + hello->name + " is connected already", true);
    }
    const auto waits = [](const auto& entry) { return entry.second.connection.has_value(); };
    if (static_cast<size_t>(std::ranges::count_if(producers_, waits)) >= options_.max_waiting)
      return reject(connection, "too many producers wait for a reader", true);
    connection.can_replay = hello->can_replay;
    producers_[hello->name].connection = std::move(connection);
    ready_.push_back(hello->name);
  }

  void log_rejection(const std::string& process, std::string_view reason) {
    if (const auto suppressed = rejected_lines_.pass())
      log_warn("stream producer rejected",
               {{"process", process}, {"reason", reason}, {"suppressed", *suppressed}});
  }

  void reject(const Connection& connection, std::string_view reason, bool can_retry) {
    log_rejection(connection.process, reason);
    (void)send_line(*connection.descriptor, hello_error(reason, can_retry));
  }

  // Constant after construction.
  const ProducerOptions options_;
  const InputDescriptor listening_;
  const std::shared_ptr<SharedHistory> history_;
  std::map<std::string, std::vector<ProducerHistory::Part>> saved_;

  // Own synchronization.
  SourceWait waiting_;

  // Used by the thread that calls next(); after the end, guarded by mutex_.
  std::vector<Connection> hellos_;  // that have not sent their first line
  bool has_ended_ = false;
  LineLimit rejected_lines_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  LineLimit connected_lines_;
  LineLimit disconnected_lines_;
  std::map<std::string, Producer> producers_;
  std::deque<std::string> ready_;  // with a connection, or saved bytes; in the order of next()
  bool names_ended_ = false;       // next() has returned the end
  std::vector<Connection> end_requests_;  // that wait for the reply
};

}  // namespace

std::unique_ptr<StreamInputs> make_producer_inputs(InputDescriptor listening,
                                                   ProducerOptions options,
                                                   std::optional<ByteHistory> maybe_history,
                                                   std::vector<KnownProducer> known) {
  return std::make_unique<ProducerInputs>(std::move(listening), std::move(options), maybe_history,
                                          std::move(known));
}

}  // namespace stoker::data::stream
