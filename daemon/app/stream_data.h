// stream_data: the stream of data.train in stokerd: the descriptor of its source, and how the worker
// process is supplied.
//
// Threads:  the trainer thread, if nothing else is said.
// Blocking: open_stream_input() of a socket until the other side accepts, of external producers as
//           ListeningSocket::open(), and a few seconds for a worker process that is ending; the others
//           for the disk.
// Errors:   those of StreamSource, with the setting.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "daemon/server/listening_socket.h"
#include "daemon/supervisor/feed_supervisor.h"
#include "daemon/train/training_state.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/source.h"
#include "shared/data/stream/byte_input.h"
#include "shared/feed/stream_state.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// The descriptor of a source, for the worker process. It stays open until the end of the run, so that
// a producer does not notice the end of a worker process.
struct StreamInput {
  data::stream::InputDescriptor descriptor;
  // Of external producers: removes the file of the socket, before the descriptor is closed.
  std::optional<server::ListeningSocket> maybe_socket = {};
};
// Of stdin, a FIFO or a socket; null: the worker process opens files. Of external producers, a
// socket in the run directory; kInvalidArgument: a process of another program listens there.
Result<std::unique_ptr<StreamInput>> open_stream_input(const config::Config& config,
                                                       const run::RunLayout& layout);

// For a ring that starts at the ticket of `state`, whose history is moved. `maybe_input` must outlive
// the supervisor. `continues_stream`: it was read by this process before.
Result<supervisor::StreamSupply> make_stream_supply(const config::Config& config,
                                                    const data::Source& data,
                                                    train::TrainingState& state,
                                                    const StreamInput* maybe_input,
                                                    bool continues_stream);

// Of a checkpoint, a directory.
Result<feed::StreamState> read_stream_state(const std::string& checkpoint);

// Moves the files of a spool folder that no stream reads that continues from the state to the
// subfolder "done"; of other streams nothing. An error, also that of `state`, is logged, and the files
// remain until the next call. Any thread, one at a time.
void archive_finished_files(const config::Config& config, const Result<feed::StreamState>& state);
// As above, of the stream state of a checkpoint, a directory.
void archive_finished_files(const config::Config& config, const std::string& checkpoint);

}  // namespace stoker::app
