// StreamInputs: the inputs of a stream in the order in which they are read.
//
// Threads:  next() from one thread; the other methods from any.
// Blocking: next() until there is an input, the end or a stop, which it notices within 100 ms; open()
//           for the disk.
// Errors:   next(): kCancelled (stop), those of SpoolFolder. open(): those of StreamSource;
//           kInvalidArgument: a descriptor was opened before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "shared/base/status.h"
#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/record_stream.h"
#include "shared/data/stream/spool_folder.h"
#include "shared/data/stream/stream_source.h"

namespace stoker::data::stream {

class StreamInputs {
 public:
  struct Item {
    std::string name;       // for open()
    uint64_t identity = 0;  // ByteInput::identity(); 0: unknown until it is opened
  };

  // What follows from their source.
  struct Traits {
    // Whether open() can be called again for a name, and returns the same bytes. Otherwise it can be
    // called once, and reading continues with the first byte that comes.
    bool can_be_read_again = true;
    // Whether an input starts at the offset that it was opened with, and not at its first byte.
    bool starts_at_offset = false;
    // Whether an input that has ended continues where it did when next() returns its name again, as
    // that of a producer that connects again. It is always the same input, and ends with the stream. A
    // record of which the end is missing comes again.
    bool can_continue = false;
    uint64_t period = 0;  // after so many inputs, the names repeat without end; 0: they do not
  };

  virtual ~StreamInputs() = default;
  const Traits& traits() const { return traits_; }

  // nullopt at the end.
  virtual Result<std::optional<Item>> next(const std::stop_token& stop) = 0;
  // `from`: of the first byte that is required, with starts_at_offset.
  virtual Result<std::unique_ptr<ByteInput>> open(const std::string& name,
                                                  const StreamPosition& from) = 0;
  // Whether next() waits for another program.
  virtual bool is_waiting() const { return false; }
  // Increases while next() works or waits, as ByteInput::polls().
  virtual uint64_t polls() const { return 0; }
  // Whether an input must be remembered after it was read, so that it is not read again. By
  // hash_of_name(), because there can be many.
  virtual bool must_remember(uint64_t /*name_hash*/) const { return false; }
  // With can_continue: the input was read up to `at`, and its records are in the queue. With an
  // error, no record can be found behind it.
  virtual void close(const std::string& /*name*/, const StreamPosition& /*at*/,
                     const Status& /*error*/) {}
  // All records of the input that is read end before `offset`.
  virtual void set_complete(uint64_t /*offset*/) {}
  // When no thread uses the inputs any more: saves what was sent by producers that cannot send it again,
  // and not read. They can send nothing more.
  virtual void save_unread() {}

 protected:
  explicit StreamInputs(const Traits& traits) : traits_(traits) {}

  Traits traits_;  // constant while inputs are read
};

// The files of a GLOB, `num_epochs` times; nullopt: without end. `first`: number of the first one, to
// continue.
std::unique_ptr<StreamInputs> make_file_inputs(StreamSource source,
                                               std::optional<uint64_t> num_epochs,
                                               uint64_t first = 0);
// The files of a spool folder, without those that are in `taken`.
Result<std::unique_ptr<StreamInputs>> make_spool_inputs(const std::string& folder,
                                                        SpoolFolder::Taken taken = {});
// Standard input or a FIFO. `first`: as above; with 1, next() has nothing, and open() is
// called for the input that the state of the stream names.
std::unique_ptr<StreamInputs> make_descriptor_inputs(InputDescriptor descriptor,
                                                     uint64_t first = 0);
// The same with a history of its bytes, from which they can be read again.
std::unique_ptr<StreamInputs> make_recorded_inputs(InputDescriptor descriptor,
                                                   const ByteHistory& history, uint64_t first = 0);

}  // namespace stoker::data::stream
