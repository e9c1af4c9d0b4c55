// stream_tensors: the state of a stream as tensors of a checkpoint's trainer_state.safetensors.
//
//   stream.next_source  I64 []      number of the first input that is not in stream.sources
//   stream.sources      I64 [n, 5]  by number: number, offset, record, identity, whether it has ended
//   stream.names        U8 [bytes]  the names of these inputs, each followed by a zero byte
//   stream.queue        I64 [n, 3]  elements of the queue, in its order: number of the input, offset, record
//   stream.finished     I64 [n, 3]  files of a spool folder that were read and are still there, in the order in
//                                   which they ended: number, hash of the name, identity
//   stream.generator    I64 [3]     of a RandomShuffleQueue
//   stream.history      U8 [bytes]  of an input that cannot be read again, and was not used
//   stream.history_range  I64 [2]   the offset of its first byte, and that behind its last whole record
//
// Without elements or inputs, their tensors are missing.
//
// Threads: functions of their arguments.
// Errors:  read_stream(): kCorrupt with the tensor, those of the file.
#pragma once

#include <optional>

#include "daemon/writer/snapshot.h"
#include "shared/base/status.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/feed/stream_state.h"

namespace stoker::train {

void add_stream(writer::Snapshot& snapshot, const feed::StreamState& state);
void add_history(writer::Snapshot& snapshot, const feed::StreamHistory& history);
// nullopt: the checkpoint is of indexed data, or of the start of a stream.
Result<std::optional<feed::StreamState>> read_stream(const checkpoint::TensorSource& file);
Result<std::optional<feed::StreamHistory>> read_history(const checkpoint::TensorSource& file);

}  // namespace stoker::train
