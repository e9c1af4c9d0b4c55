// The code of the ring, compiled with scheduled_atomics.h, in every schedule with few preemptions
// (ScheduleExplorer): two producers, a consumer and a supervisor on two slots, with no fault or one
// anywhere; and its queue of error reports.
//
// Each ticket must arrive once, in order; a slot or report must not be written while another thread
// can access it (vector clocks); no thread may wait forever. Operations in the code are also
// changed, one at a time: a weaker memory order, without comparing, or omitted. A changed ring must
// fail in some schedule (kDetections), unless kExemptions gives the reason why it need not.
//
// With at most one preemption, a change with two; with STOKER_FAULT_TESTS=full (scripts/fault_tests.sh
// ring_model) two.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/ring/mapped_ring.h"
#include "tests/shared/ring/schedule_explorer.h"
#include "tests/support/full_test.h"

namespace stoker::ring {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kSlots = 2, kTickets = 3;
constexpr int kProducer = 0, kOtherProducer = 1, kSupervisor = 3;  // threads; 2 is the consumer

enum class Fault {
  kNone,
  kAbandon,  // the first claim of producer 0 is abandoned
  kClose,
  kEnd,      // the data ends before the last ticket
  kKill,     // producer 0 is killed anywhere, and requeued
  kReplace,  // … and replaced
  kRemove,   // producer 0 is requeued while it runs
  kRetire,   // producer 0 is retired while it runs
};

bool is_killed(Fault fault) { return fault == Fault::kKill || fault == Fault::kReplace; }
bool is_removed(Fault fault) { return fault == Fault::kRemove || fault == Fault::kRetire; }

// A segment that is set to its initial state before each schedule, because a new one, or a new
// mapping, is expensive.
class InitialSegment {
 public:
  InitialSegment()
      : ring_(*ShmRing::create(BatchLayout({{"bytes", DType::kU8, {1}}}, 1),
                               {.slots = kSlots, .end_ticket = kTickets})),
        view_(*read_layout(attach().bytes())) {
    // Without the reports and slots, which these tests do not use.
    bytes_.resize(view_.header.report_table);
    std::memcpy(bytes_.data(), attach().bytes().data(), bytes_.size());
  }

  MappedRing map(MappedRing::Role role) {
    if (mappings_.empty()) return MappedRing(attach(), view_, role);
    Segment mapping = std::move(mappings_.back());
    mappings_.pop_back();
    return MappedRing(std::move(mapping), view_, role);
  }
  void unmap(MappedRing& ring) { mappings_.push_back(ring.take_segment()); }
  void reset(ShmRing& ring) const { std::memcpy(start(ring), bytes_.data(), bytes_.size()); }
  std::byte* start(ShmRing& ring) const { return ring.payload().data() - view_.header.payload; }
  const RingHeader& header() const { return view_.header; }
  ShmRing& ring() { return *ring_; }

 private:
  Segment attach() const { return *Segment::attach(UniqueFd(::dup(ring_->fd()))); }

  std::unique_ptr<ShmRing> ring_;
  SegmentView view_;
  std::vector<std::byte> bytes_;
  std::vector<Segment> mappings_;  // not in use
};

// The processes of a schedule.
class RingProgram {
 public:
  RingProgram(ScheduleExplorer& explorer, InitialSegment& segment, Fault fault)
      : explorer_(explorer),
        segment_(segment),
        fault_(fault),
        num_tickets_(fault == Fault::kEnd ? kTickets - 1 : kTickets),
        stokerd_(segment.map(MappedRing::Role::kCreator)),
        feed_(segment.map(MappedRing::Role::kAttached)) {
    segment.reset(stokerd_);
    std::byte* const start = segment.start(stokerd_);
    explorer.share(start, segment.header().segment_bytes, segment.start(feed_));
    explorer.exclude(start + segment.header().report_table, start + segment.header().payload);
    for (ProducerId& id : ids_) id = *stokerd_.add_producer("producer");
    explorer.add_thread([this] { produce(kProducer, ids_[0]); });
    explorer.add_thread([this] { produce(kOtherProducer, ids_[1]); });
    explorer.add_thread([this] { consume(); });
    if (fault != Fault::kNone && fault != Fault::kAbandon)
      explorer.add_thread([this] { supervise(); });
    explorer.at_end([this] { check_end(); });
  }
  ~RingProgram() {
    segment_.unmap(feed_);
    segment_.unmap(stokerd_);
  }
  RingProgram(const RingProgram&) = delete;
  RingProgram& operator=(const RingProgram&) = delete;

 private:
  void produce(int thread, ProducerId id) {
    const bool can_be_removed = thread == kProducer && is_removed(fault_);
    bool abandons = thread == kProducer && fault_ == Fault::kAbandon;
    while (true) {
      const auto claim = feed_.claim(id, 1h);
      if (!claim.ok()) {
        if (claim.status().code() != StatusCode::kClosed && !can_be_removed)
          explorer_.fail(claim.status().message());
        return;
      }
      if (claim->ticket >= kTickets) explorer_.fail("a ticket after the end is claimed");
      if (claim->ticket >= num_tickets_) return feed_.abandon(id, *claim);
      // One that is removed while it runs can still write into the slot of the next owner.
      if (!can_be_removed) explorer_.write_plain(&filled_[claim->ticket % kSlots]);
      if (std::exchange(abandons, false)) {
        feed_.abandon(id, *claim);
        feed_.abandon(id, *claim);  // no effect
        continue;
      }
      filled_[claim->ticket % kSlots] = claim->ticket;
      const bool was_removed = can_be_removed && explorer_.has_ended(kSupervisor);
      const bool is_published = feed_.publish(id, *claim);
      if (is_published && was_removed) explorer_.fail("a removed producer publishes");
      if (!is_published && !can_be_removed) explorer_.fail("a claim is lost");
    }
  }

  void consume() {
    while (true) {
      const auto batch = stokerd_.pop(1h);
      if (!batch.ok()) {
        if (batch.status().code() != StatusCode::kClosed) explorer_.fail(batch.status().message());
        if (num_popped_ != num_tickets_ && fault_ != Fault::kClose)
          explorer_.fail("end of data after " + std::to_string(num_popped_) + " tickets");
        return;
      }
      if (batch->ticket != num_popped_)
        explorer_.fail("ticket " + std::to_string(batch->ticket) + " is consumed as number " +
                       std::to_string(num_popped_));
      ++num_popped_;
      const uint64_t slot = batch->ticket % kSlots;
      explorer_.read_plain(&filled_[slot]);
      if (filled_[slot] != batch->ticket && !is_removed(fault_))
        explorer_.fail("ticket " + std::to_string(batch->ticket) + " is not filled");
      stokerd_.release(batch->ticket);
    }
  }

  void supervise() {
    switch (fault_) {
      case Fault::kClose:
        return stokerd_.close();
      case Fault::kEnd:
        explorer_.wait_for_end(kProducer);
        explorer_.wait_for_end(kOtherProducer);
        if (stokerd_.first_unpublished() != num_tickets_ || !stokerd_.end_at(num_tickets_).ok())
          explorer_.fail("the data does not end at the first ticket without a batch");
        return;
      case Fault::kKill:
        explorer_.wait_for_end(kProducer);
        stokerd_.requeue(ids_[0]);
        stokerd_.requeue(ids_[0]);  // no effect
        return;
      case Fault::kReplace: {
        explorer_.wait_for_end(kProducer);
        stokerd_.requeue(ids_[0]);
        const auto successor = stokerd_.add_producer("successor");
        if (!successor.ok()) explorer_.fail(successor.status().message());
        stokerd_.requeue(ids_[0]);  // no effect on the successor
        return produce(kSupervisor, *successor);
      }
      case Fault::kRemove:
        stokerd_.requeue(ids_[0]);
        return;
      case Fault::kRetire:
        stokerd_.retire(ids_[0]);
        return;
      case Fault::kNone:
      case Fault::kAbandon:
        return;
    }
  }

  // Executes the other operations of the ring, too.
  void check_end() {
    if (fault_ == Fault::kRetire) stokerd_.requeue(ids_[0]);
    const RingCounters counters = stokerd_.counters();
    if (fault_ != Fault::kClose && (counters.consumed != num_tickets_ || counters.ready != 0))
      explorer_.fail("the counters are wrong");
    if (!stokerd_.has_ended()) explorer_.fail("the ring has not ended");
    if (stokerd_.progress(ids_[1]).claims != 0) explorer_.fail("a ticket stays claimed");
    stokerd_.set_producer_pid(ids_[1], 1);
    stokerd_.set_active_workers(1);
    if (feed_.active_workers() != 1) explorer_.fail("the number of active workers is wrong");
    feed_.add_completed_samples(ids_[1], 1);
    feed_.add_read_time({});
  }

  ScheduleExplorer& explorer_;
  InitialSegment& segment_;
  const Fault fault_;
  const uint64_t num_tickets_;
  MappedRing stokerd_;
  MappedRing feed_;  // of the producers
  std::array<ProducerId, 2> ids_{};
  std::array<uint64_t, kSlots> filled_{kTickets, kTickets};  // the slots: which ticket they contain
  uint64_t num_popped_ = 0;
};

// How the unfinished report of a killed producer is found.
enum class ReportCleanup { kNotKilled, kByTicket, kByNextTicket };

// Two producers report one error each, a third thread drains the queue.
class ReportProgram {
 public:
  ReportProgram(ScheduleExplorer& explorer, ReportCleanup cleanup)
      : explorer_(explorer), cleanup_(cleanup) {
    explorer.share(this, sizeof(*this));
    explorer.explore_statistics();
    for (const uint64_t ticket : {0ull, 1ull})
      explorer.add_thread([this, ticket] {
        queue_.report({.ticket = ticket, .sample = ticket + 7, .reason = "reason"});
      });
    explorer.add_thread([this] { drain(); });
    explorer.observe([this](const auto& access, const auto& result) { observe(access, result); });
    explorer.at_end([this] { check_end(); });
  }

 private:
  // Between its two changes of the word, a reporter writes the fields.
  void observe(const Access& access, const AccessResult& result) {
    for (ReportRecord& entry : entries_) {
      if (access.word == &entry.word && access.operation == Operation::kCompareExchange &&
          result.is_exchanged &&
          (access.operand & 0xf) == static_cast<uint64_t>(ReportPhase::kWriting))
        explorer_.write_plain(&entry);
      if (access.word == &entry.ticket) explorer_.read_plain(&entry);
    }
  }

  void drain() {
    take(queue_.drain(0));
    explorer_.wait_for_end(kProducer);
    if (cleanup_ == ReportCleanup::kByTicket) queue_.clear_unfinished(0);
    take(queue_.drain(cleanup_ == ReportCleanup::kByNextTicket ? 1 : 0));
    explorer_.wait_for_end(kOtherProducer);
    take(queue_.drain(0));
  }
  void take(const std::vector<SampleError>& errors) {
    for (const SampleError& error : errors) {
      if (error.ticket > 1 || error.sample != error.ticket + 7 || error.reason != "reason")
        explorer_.fail("a report has other fields");
      ++num_received_[std::min<uint64_t>(error.ticket, 1)];
    }
  }
  void check_end() {
    if (num_received_[1] != 1) explorer_.fail("a report is lost or repeated");
    if (cleanup_ == ReportCleanup::kNotKilled ? num_received_[0] != 1 : num_received_[0] > 1)
      explorer_.fail("a report is lost or repeated");
    for (const ReportRecord& entry : entries_)
      if (entry.word != 0) explorer_.fail("an entry is not free");
  }

  ScheduleExplorer& explorer_;
  const ReportCleanup cleanup_;
  RingHeader header_{};
  uint32_t closed_ = 0;
  std::array<ReportRecord, 2> entries_{};  // a reporter never waits
  ErrorReportQueue queue_{header_, closed_, entries_};
  std::array<int, 2> num_received_{};
};

// Two producers lose a report each while the counters are read.
class LostReportProgram {
 public:
  explicit LostReportProgram(InitialSegment& segment)
      : segment_(segment),
        header_(*reinterpret_cast<RingHeader*>(segment.start(segment.ring()))),
        queue_(header_, header_.closed, {}) {
    queue_.report({});  // waits one second for space, later ones do not
  }

  void start(ScheduleExplorer& explorer) {
    segment_.reset(segment_.ring());
    explorer.share(&header_, segment_.header().segment_bytes);
    explorer.explore_statistics();
    for (int i = 0; i < 2; ++i) explorer.add_thread([this] { queue_.report({}); });
    explorer.add_thread([this, &explorer] {
      const RingCounters counters = segment_.ring().counters();
      if (counters.lost_reports > counters.sample_errors)
        explorer.fail("a lost report was not counted as a report");
    });
    explorer.at_end([this, &explorer] {
      if (segment_.ring().counters().lost_reports != 2) explorer.fail("a loss is not counted");
    });
  }

 private:
  InitialSegment& segment_;
  RingHeader& header_;
  ErrorReportQueue queue_;  // without entries
};

// ---- Explorations

struct Subject {
  enum class Program { kRing, kReports, kLostReports };
  const char* name;
  Program program;
  Fault fault = Fault::kNone;                         // of kRing
  ReportCleanup cleanup = ReportCleanup::kNotKilled;  // of kReports
};
constexpr Subject kSubjects[] = {
    {"NoFault", Subject::Program::kRing},
    {"TicketIsAbandoned", Subject::Program::kRing, Fault::kAbandon},
    {"RingIsClosed", Subject::Program::kRing, Fault::kClose},
    {"DataEndsEarly", Subject::Program::kRing, Fault::kEnd},
    {"RunningProducerIsRemoved", Subject::Program::kRing, Fault::kRemove},
    {"RunningProducerIsRetired", Subject::Program::kRing, Fault::kRetire},
    {"Reports", Subject::Program::kReports},
    {.name = "ReporterIsKilled",
     .program = Subject::Program::kReports,
     .cleanup = ReportCleanup::kByTicket},
    {.name = "ReporterIsKilledAndOutdated",
     .program = Subject::Program::kReports,
     .cleanup = ReportCleanup::kByNextTicket},
    {"ReportsAreLost", Subject::Program::kLostReports},
    // With the most schedules: the producer can be killed before each of its operations.
    {"ProducerIsKilled", Subject::Program::kRing, Fault::kKill},
    {"ProducerIsReplaced", Subject::Program::kRing, Fault::kReplace},
};

class RingExplorer {
 public:
  Exploration explore(const Subject& subject, int preemptions) {
    switch (subject.program) {
      case Subject::Program::kRing:
        return explore_ring(subject.fault, preemptions);
      case Subject::Program::kReports:
        return explore_reports(subject.cleanup, preemptions);
      case Subject::Program::kLostReports:
        return explore_lost_reports(preemptions);
    }
    return {};
  }
  ScheduleExplorer& scheduler() { return scheduler_; }

 private:
  Exploration explore_ring(Fault fault, int preemptions) {
    std::optional<RingProgram> program;
    return scheduler_.explore({.preemptions = preemptions,
                               .mortal_thread = is_killed(fault) ? kProducer : -1,
                               // It can miss wake-ups, and polls again after 100 ms.
                               .timeouts = is_removed(fault)},
                              [&](ScheduleExplorer& explorer) {
                                program.reset();
                                program.emplace(explorer, segment_, fault);
                              });
  }
  Exploration explore_reports(ReportCleanup cleanup, int preemptions) {
    std::optional<ReportProgram> program;
    return scheduler_.explore(
        {.preemptions = preemptions,
         .mortal_thread = cleanup == ReportCleanup::kNotKilled ? -1 : kProducer},
        [&](ScheduleExplorer& explorer) { program.emplace(explorer, cleanup); });
  }
  Exploration explore_lost_reports(int preemptions) {
    if (!lost_reports_) lost_reports_.emplace(segment_);
    return scheduler_.explore({.preemptions = preemptions},
                              [&](ScheduleExplorer& explorer) { lost_reports_->start(explorer); });
  }

  ScheduleExplorer scheduler_;
  InitialSegment segment_;
  std::optional<LostReportProgram> lost_reports_;
};

class RingScheduleTest : public ::testing::TestWithParam<Subject> {};

TEST_P(RingScheduleTest, LosesAndDuplicatesNothing) {
  // requeue() is for producers that have ended. Of one that runs, the consumer can see a claim after
  // its row was freed, and ends with an error; nothing is lost. That needs two preemptions.
  const bool is_extended = test::is_full_test() && GetParam().fault != Fault::kRemove;
  const int preemptions = is_extended ? 2 : 1;
  const Exploration exploration = RingExplorer().explore(GetParam(), preemptions);
  EXPECT_EQ(exploration.failure, "");
  std::printf("schedules: %s: %llu with up to %d preemptions, %llu states\n", GetParam().name,
              static_cast<unsigned long long>(exploration.schedules), preemptions,
              static_cast<unsigned long long>(exploration.states));
}

INSTANTIATE_TEST_SUITE_P(Subjects, RingScheduleTest, ::testing::ValuesIn(kSubjects),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- Changes

// Every site that is executed.
std::vector<ScheduleExplorer::Site> all_sites(RingExplorer& explorer) {
  for (const Subject& subject : kSubjects) {
    const int preemptions = is_removed(subject.fault) ? 1 : 0;  // some need one
    EXPECT_EQ(explorer.explore(subject, preemptions).failure, "") << subject.name;
  }
  return explorer.scheduler().sites();
}

// Operations in the code of the ring: "mapped_ring.cc:12".
std::set<std::string> operations_in_code() {
  std::set<std::string> operations;
  for (const std::string name : {"mapped_ring.h", "mapped_ring.cc"}) {
    std::ifstream file(std::string(STOKER_RING_SOURCES "/") + name);
    uint32_t number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.find("is_drained_") != std::string::npos) continue;  // not in the segment
      for (const char* const operation : {".load(", ".store(", ".exchange(", ".fetch_add(",
                                          ".fetch_sub(", ".compare_exchange_strong("})
        if (line.find(operation) != std::string::npos)
          operations.insert(name + ":" + std::to_string(number));
    }
  }
  return operations;
}

constexpr unsigned bit(Change change) { return 1u << static_cast<unsigned>(change); }
constexpr unsigned kAcquireRelease = bit(Change::kAcquireRelease);
constexpr unsigned kRelaxed = bit(Change::kRelaxed);
constexpr unsigned kNotCompared = bit(Change::kNotCompared);
constexpr unsigned kOmitted = bit(Change::kOmitted);

// Changes after which some schedule fails. Memory orders that are not in this table are stronger
// than these programs need; of comparisons and omitted operations, the others are in kExemptions.
struct Detection {
  const char* site;
  unsigned changes;
  int preemptions = 0;            // that the schedule needs
  const char* subject = nullptr;  // the only one that is explored; null: all
};
constexpr Detection kDetections[] = {
    {"EventCount::enter fetch_add", kAcquireRelease | kRelaxed | kOmitted},
    {"EventCount::sleep futex_wait", kOmitted},
    {"EventCount::sleep futex_wait", kNotCompared, 1},
    {"EventCount::wake_waiters fetch_add", kOmitted, 1},
    {"EventCount::wake_waiters futex_wake", kOmitted},
    {"ProducerTable::store store 2", kOmitted},
    {"ProducerTable::replace store", kAcquireRelease | kRelaxed | kOmitted},
    {"ErrorReportQueue::report fetch_add 2", kRelaxed | kOmitted},
    {"ErrorReportQueue::try_report compare_exchange", kRelaxed | kNotCompared | kOmitted},
    {"ErrorReportQueue::try_report compare_exchange 2", kRelaxed | kOmitted},
    {"ErrorReportQueue::drain store", kRelaxed | kOmitted},
    {"ErrorReportQueue::drain compare_exchange", kRelaxed | kOmitted},
    {"ErrorReportQueue::clear_unfinished compare_exchange", kRelaxed | kNotCompared | kOmitted},
    {"MappedRing::close store (private)", kOmitted},
    {"MappedRing::close store 2", kOmitted},
    {"MappedRing::requeue_claims compare_exchange", kRelaxed | kOmitted},
    // The producer publishes after the load before it.
    {"MappedRing::requeue_claims compare_exchange", kNotCompared, 2, "RunningProducerIsRetired"},
    {"MappedRing::poll_ticket compare_exchange", kOmitted},
    {"MappedRing::poll_ticket compare_exchange", kAcquireRelease | kRelaxed | kNotCompared, 1},
    {"MappedRing::publish compare_exchange", kRelaxed | kOmitted},
    {"MappedRing::publish compare_exchange", kAcquireRelease | kNotCompared, 1},
    {"MappedRing::requeue_ticket compare_exchange", kOmitted},
    {"MappedRing::requeue_ticket compare_exchange", kAcquireRelease | kRelaxed | kNotCompared, 1},
    {"MappedRing::poll_batch compare_exchange", kOmitted},
    {"MappedRing::free_slot compare_exchange", kRelaxed | kOmitted},
    {"MappedRing::store_next_ticket store (private)", kOmitted},
    {"MappedRing::store_next_ticket store 2", kOmitted},
    {"MappedRing::wait_for fetch_sub", kOmitted},
    {"EventCount::wake_waiters load", kAcquireRelease | kRelaxed},
    {"ProducerTable::alive load", kAcquireRelease | kRelaxed},
    {"MappedRing::requeue_claims load", kAcquireRelease | kRelaxed, 1},
    {"MappedRing::poll_batch load", kAcquireRelease | kRelaxed},
    {"MappedRing::next_ticket load", kAcquireRelease | kRelaxed, 1},
    {"MappedRing::next_ticket load (private)", kAcquireRelease | kRelaxed, 1},
    {"ErrorReportQueue::drain load", kRelaxed},
    {"MappedRing::counters load 2", kRelaxed},
};

struct Exemption {
  const char* site;
  unsigned changes;
  const char* reason;
};
constexpr Exemption kExemptions[] = {
    {"EventCount::leave fetch_sub", kOmitted, "unnecessary system calls"},
    {"MappedRing::wait_for fetch_add", kOmitted, "unnecessary system calls after a kill"},
    {"ProducerTable::add compare_exchange (private)", kNotCompared | kOmitted,
     "one thread registers producers"},
    {"ProducerTable::add store", kOmitted, "for status"},
    {"ProducerTable::add store 2", kOmitted, "take_waiting() has stored 0"},
    {"ProducerTable::add store 3", kOmitted, "for status"},
    {"ProducerTable::add store 4", kOmitted, "for status"},
    {"ProducerTable::store store (private)", kOmitted,
     "the successor is not removed; its claims are accepted in both states"},
    {"ProducerTable::replace compare_exchange (private)", kNotCompared | kOmitted,
     "one thread removes producers, and no row is reused after an incomplete removal"},
    {"ProducerTable::take_waiting exchange", kOmitted, "the row's next owner stores 0"},
    {"ErrorReportQueue::try_report compare_exchange 2", kNotCompared,
     "a report is cleared after its writer has ended"},
    {"ErrorReportQueue::drain compare_exchange", kNotCompared,
     "a report is outdated after its writer has ended"},
    {"MappedRing::poll_batch compare_exchange", kNotCompared,
     "only the consumer changes a ready slot; overwritten ones: ring_overwrite_test.cc"},
    {"MappedRing::free_slot compare_exchange", kNotCompared,
     "only the consumer changes a slot in use; overwritten ones: ring_overwrite_test.cc"},
    {"MappedRing::set_producer_pid store", kOmitted, "for status"},
    {"MappedRing::set_active_workers store (private)", kOmitted, "for status"},
    {"MappedRing::set_active_workers store 2", kOmitted, "for status"},
};

bool is_exempt(const std::string& site, Change change) {
  return std::ranges::any_of(kExemptions, [&](const Exemption& exemption) {
    return site == exemption.site && (exemption.changes & bit(change)) != 0;
  });
}
const Detection* find_detection(const std::string& site, Change change) {
  const auto found = std::ranges::find_if(kDetections, [&](const Detection& detection) {
    return site == detection.site && (detection.changes & bit(change)) != 0;
  });
  return found == std::end(kDetections) ? nullptr : found;
}

// The first subject that fails with the change and its error; empty: none.
std::string find_failure(RingExplorer& explorer, const ScheduleExplorer::SiteKey& site,
                         Change change, const Detection& detection) {
  explorer.scheduler().change(site, change);
  std::string failure;
  for (const Subject& subject : kSubjects) {
    if (detection.subject != nullptr && detection.subject != std::string_view(subject.name))
      continue;
    failure = explorer.explore(subject, detection.preemptions).failure;
    if (failure.empty()) continue;
    failure = std::string(subject.name) + ": " + failure.substr(0, failure.find('\n'));
    break;
  }
  explorer.scheduler().change({}, Change::kNone);
  return failure;
}

class ChangedRingTest : public ::testing::TestWithParam<Change> {};

TEST_P(ChangedRingTest, FailsInSomeSchedule) {
  const Change change = GetParam();
  const bool is_order = change == Change::kAcquireRelease || change == Change::kRelaxed;
  RingExplorer explorer;
  int num_failed = 0;
  for (const auto& site : all_sites(explorer)) {
    if (!std::ranges::count(changes_of(site), change)) continue;
    const Detection* const detection = find_detection(site.name, change);
    if (detection == nullptr) {
      EXPECT_TRUE(is_order || is_exempt(site.name, change)) << site.name << " is in no table";
      continue;
    }
    ++num_failed;
    const std::string failure = find_failure(explorer, site.key, change, *detection);
    EXPECT_NE(failure, "") << site.name << ", " << to_string(change) << ": no schedule fails";
  }
  EXPECT_GT(num_failed, 0);
  std::printf("schedules: %d changes, %s, fail\n", num_failed,
              std::string(to_string(change)).c_str());
}

INSTANTIATE_TEST_SUITE_P(Changes, ChangedRingTest,
                         ::testing::Values(Change::kAcquireRelease, Change::kRelaxed,
                                           Change::kNotCompared, Change::kOmitted),
                         [](const auto& test) {
                           std::string name(to_string(test.param));
                           std::erase(name, ' ');
                           return name;
                         });

TEST(RingSitesTest, IncludeAllOperationsAndTables) {
  RingExplorer explorer;
  std::set<std::string> operations = operations_in_code();
  EXPECT_GT(operations.size(), 50u);
  std::set<std::string> names;
  for (const Subject& subject : kSubjects) {
    // One operation needs a kill and a preemption.
    if (subject.fault != Fault::kKill) continue;
    EXPECT_EQ(explorer.explore(subject, /*preemptions=*/1).failure, "");
  }
  for (const auto& site : all_sites(explorer)) {
    operations.erase(std::string(site.key.file) + ":" + std::to_string(site.key.line));
    names.insert(site.name);
  }
  EXPECT_EQ(operations, std::set<std::string>{}) << "these are not executed";
  for (const Detection& detection : kDetections)
    EXPECT_TRUE(names.contains(detection.site)) << detection.site;
  for (const Exemption& exemption : kExemptions)
    EXPECT_TRUE(names.contains(exemption.site)) << exemption.site << ": " << exemption.reason;
}

}  // namespace
}  // namespace stoker::ring
