// Headers that many tests include, see std.h.
#include <gtest/gtest.h>

#include <filesystem>

#include "std.h"
