// FileCallShape: describes the system calls that access, change or sync files and the positions of
// their arguments.
//
// Threads: any.
#pragma once

namespace stoker::test {

// Arguments are numbered from 0; -1: none.
struct FileCallShape {
  long number;
  const char* name;
  int path;                    // argument with the path or the descriptor
  bool is_descriptor = false;  // `path` is a descriptor
  bool changes = false;        // see FileCall
  int directory = -1;          // directory descriptor of a relative path
  int to = -1;                 // argument with the new name
  int to_directory = -1;
  int bytes = -1;        // argument with the byte count of a write
  bool is_open = false;  // flags follow the path, or open_how, and decide whether it changes
};

// nullptr: not a file call.
const FileCallShape* find_file_call(unsigned long long number);

}  // namespace stoker::test
