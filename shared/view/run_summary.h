// RunSummary: state, health, progress and next step of a run, for `stokerctl runs` and `status`, the list of the page, and
// JSON.
//
// It is read from the run directory. For a run whose lock is held, add_status() or add_no_answer() adds what its
// stokerd says: a full disk is seen there alone, because no file can be written.
//
// Threads:  any; a value.
// Blocking: read_summary() reads the ends of files, and no more than a few 100 KiB.
// Errors:   none: what is missing, invalid or behind a link stays empty.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "shared/control/trainer_status.h"
#include "shared/run/lineage.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"

namespace stoker::view {

enum class Health {
  kGood,
  kAttention,  // stopped or paused on request, or unknown
  kBad,        // failed, crashed or degraded
};
std::string_view to_string(Health health);  // "good", "attention", "bad"
Health health_of(control::TrainerState state);

struct RunSummary {
  std::string name;
  std::string run_dir;
  // That of stokerd ("training", "degraded"), or "running", "no answer", "finished", "stopped", "preempted", "failed",
  // "crashed", "not started".
  std::string state = "not started";
  Health health = Health::kAttention;
  bool is_running = false;  // the lock is held
  bool has_ended = false;   // finished, stopped or failed
  std::string reason;       // of the end, the degraded state or the wait; empty: there is none
  // ISO 8601: of an end or a pause when it began; of a crash the last record. Empty: unknown.
  std::string since;
  std::string started;  // ISO 8601, of the first record; empty: there is none
  uint64_t step = 0;
  uint64_t max_steps = 0;                                  // 0: unknown
  double loss = std::numeric_limits<double>::quiet_NaN();  // NaN: none
  double samples_per_second = 0, eta_seconds = 0;          // of stokerd, while it trains; 0: none
  struct Best {
    std::string dataset, metric;
    std::string direction;  // "minimize", "maximize"; empty: unknown
    double value = 0;
    uint64_t step = 0;
    std::string manifest_sha256;
  };
  std::optional<Best> best;
  struct Checkpoint {
    uint64_t step = 0;
    std::string saved_at;  // ISO 8601; empty: unknown
  };
  std::optional<Checkpoint> checkpoint;    // the newest
  std::optional<uint64_t> evaluated_step;  // the newest evaluated checkpoint of the present branch
  run::EvaluatorState evaluator;
  std::optional<run::LastStart> last_start;  // that ended before it was accepted
  std::string next;                          // what to do; empty: nothing
};

// `name`: as a list calls it.
RunSummary read_summary(const run::RunLayout& layout, std::string name);
// Steps of the newest checkpoint that are not evaluated.
uint64_t steps_behind(const RunSummary& summary);
// Of the stokerd that holds the lock.
void add_status(RunSummary& summary, const control::TrainerStatus& status);
// It holds the lock and gave no answer, for this reason.
void add_no_answer(RunSummary& summary, std::string reason);

run::Lineage read_lineage(const run::RunLayout& layout);

// One object on one line.
std::string to_json(const RunSummary& summary);

}  // namespace stoker::view
