// file calls: the system calls that name files, or change or keep them, and where their arguments
// are.
//
// Threads: any.
#pragma once

namespace stoker::test {

// Arguments are numbered from 0; -1: it has none.
struct FileCallShape {
  long number;
  const char* name;
  int path;                    // of the path, or of the descriptor
  bool is_descriptor = false;  // `path` is one
  bool changes = false;        // see FileCall
  int directory = -1;          // of the descriptor that a relative path begins at
  int to = -1;                 // of the new name
  int to_directory = -1;
  int bytes = -1;        // of the count of a write
  bool is_open = false;  // flags follow the path: they say whether it changes anything
};

// nullptr: not a call on files.
const FileCallShape* find_file_call(unsigned long long number);

}  // namespace stoker::test
