// PauseLog: logs the start and the end of each pause once, whether it is that of one trainer or lasts
// until the next one, after the memory of the device was released.
//
// Threads: the trainer thread.
#pragma once

#include <cstdint>

namespace stoker::train {

class PauseLog {
 public:
  void pause(uint64_t step);
  void resume(uint64_t step);  // does nothing if there was no pause

 private:
  bool is_paused_ = false;
};

}  // namespace stoker::train
