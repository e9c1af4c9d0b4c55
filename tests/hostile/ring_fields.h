// all_fields(): every atomic field of a ring, and how a faulty or hostile process overwrites it.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/shared/ring/ring_view.h"

namespace stoker::hostile {

using Random = std::mt19937_64;

struct RingField {
  enum class Use {
    kHint,      // counters, wake-ups and heartbeats: the batches do not depend on it
    kReport,    // reports of unreadable samples, which are believed
    kProtocol,  // the rest: a wrong value can end the run
  };
  std::string name;
  Use use = Use::kProtocol;
  std::function<void(const ring::RingView&, Random&)> overwrite;  // with a random value
};

namespace fields {

using ring::EventWords;
using ring::ProducerRecord;
using ring::ReportRecord;
using ring::RingHeader;
using ring::RingView;
using Use = RingField::Use;

// A value near `value`, a small one, a limit, or any other.
inline uint64_t mutate(uint64_t value, Random& random) {
  switch (random() % 6) {
    case 0:
      return random() % 4;
    case 1:
      return value + 1 + random() % 4;
    case 2:
      return value - 1 - random() % 4;
    case 3:
      return ~uint64_t{0} - random() % 3;
    case 4:
      return value ^ uint64_t { 1 } << random() % 64;
    default:
      return random();
  }
}

// A word that could be valid, for another ticket or producer.
inline uint64_t plausible_word(uint64_t word, Random& random) {
  ring::SlotState state = ring::decode(word);
  if (random() % 2 == 0) state.phase = static_cast<ring::Phase>(random() % 7);
  if (random() % 2 == 0) state.owner = static_cast<uint32_t>(random() % 3);
  if (random() % 2 == 0) state.generation = static_cast<uint32_t>(random() % 3);
  if (random() % 3 == 0) state.turn += static_cast<uint32_t>(random() % 3) - 1;
  return ring::encode(state);
}

// Any word but that of a filled slot for its current or next ticket, or of one that another producer
// may claim: only the producer knows whether it has filled the slot, so publishing an unfilled one,
// or letting two producers fill it, is like writing wrong pixels.
inline uint64_t wrong_word(uint64_t seen, Random& random) {
  using ring::Phase;
  const uint64_t word = random() % 2 == 0 ? mutate(seen, random) : plausible_word(seen, random);
  const uint32_t turn = ring::decode(seen).turn;
  for (const auto& [phase, of] : {std::pair{Phase::kReady, turn},
                                  {Phase::kReady, turn + 1},
                                  {Phase::kFree, turn},
                                  {Phase::kRequeued, turn}})
    if (word == ring::encode({.phase = phase, .turn = of})) return 0;
  return word;
}

template <typename Find>
RingField field(std::string name, Use use, Find find) {
  return {std::move(name), use, [find](const RingView& view, Random& random) {
            auto& value = find(view, random);
            using Value = std::remove_reference_t<decltype(value)>;
            const auto seen = static_cast<uint64_t>(std::atomic_ref(value).load());
            ring::overwrite(value, static_cast<Value>(mutate(seen, random)));
          }};
}
template <typename T>
RingField field(std::string name, Use use, T RingHeader::*member) {
  return field(std::move(name), use,
               [member](const RingView& view, Random&) -> T& { return view.header().*member; });
}
inline RingField field(std::string name, EventWords RingHeader::*event,
                       uint32_t EventWords::*member) {
  return field(std::move(name), Use::kHint,
               [event, member](const RingView& view, Random&) -> uint32_t& {
                 return view.header().*event.*member;
               });
}
template <typename T>
RingField field(std::string name, Use use, T ProducerRecord::*member) {
  return field(std::move(name), use, [member](const RingView& view, Random& random) -> T& {
    return view.producer(random() % 3).*member;
  });
}
template <typename T>
RingField field(std::string name, Use use, T ReportRecord::*member) {
  return field(std::move(name), use, [member](const RingView& view, Random& random) -> T& {
    return view.report(random() % 3).*member;
  });
}

}  // namespace fields

inline std::vector<RingField> all_fields() {
  using namespace fields;
  return {field("wait_batch_ns", Use::kHint, &RingHeader::wait_batch_ns),
          field("slot_freed.epoch", &RingHeader::slot_freed, &EventWords::epoch),
          field("slot_freed.waiters", &RingHeader::slot_freed, &EventWords::waiters),
          field("batch_ready.epoch", &RingHeader::batch_ready, &EventWords::epoch),
          field("batch_ready.waiters", &RingHeader::batch_ready, &EventWords::waiters),
          field("active_workers", Use::kHint, &RingHeader::active_workers),
          field("requeued", Use::kHint, &RingHeader::requeued),
          field("next_report", Use::kHint, &RingHeader::next_report),
          field("read_ns", Use::kHint, &RingHeader::read_ns),
          field("wait_slot_ns", Use::kHint, &RingHeader::wait_slot_ns),
          field("decode_ns", Use::kHint, &RingHeader::decode_ns),
          field("transform_ns", Use::kHint, &RingHeader::transform_ns),
          field("producer pid", Use::kHint, &ProducerRecord::pid),
          field("producer waiting", Use::kHint, &ProducerRecord::waiting),
          field("producer polls", Use::kHint, &ProducerRecord::polls),
          field("producer published", Use::kHint, &ProducerRecord::published),
          field("producer samples", Use::kHint, &ProducerRecord::samples),
          field("sample_errors", Use::kReport, &RingHeader::sample_errors),
          field("lost_reports", Use::kReport, &RingHeader::lost_reports),
          field("report word", Use::kReport, &ReportRecord::word),
          field("report ticket", Use::kReport, &ReportRecord::ticket),
          field("report length", Use::kReport, &ReportRecord::length),
          field("magic", Use::kProtocol, &RingHeader::magic),
          field("next_ticket", Use::kProtocol, &RingHeader::next_ticket),
          field("closed", Use::kProtocol, &RingHeader::closed),
          field("producer word", Use::kProtocol, &ProducerRecord::word),
          {"plausible producer word", Use::kProtocol,
           [](const RingView& view, Random& random) {
             ring::overwrite(view.producer(random() % 3).word, (random() % 3) << 32 | random() % 3);
           }},
          {"slot word", Use::kProtocol, [](const RingView& view, Random& random) {
             uint64_t& word = view.slot_word(random());
             ring::overwrite(word, wrong_word(std::atomic_ref(word).load(), random));
           }}};
}

}  // namespace stoker::hostile
