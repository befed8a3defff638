dnl Halyard: macros of configure.ac. Each prints one line and leaves one variable,
dnl so that the closing summary can say what was found.
dnl SPDX-License-Identifier: BSD-3-Clause

dnl HALYARD_WITH_LIB(name, VAR, header, what it is for)
dnl   Looks for the header of an optional library below --with-NAME=DIR or in the usual places; the
dnl   library itself is opened when it is needed, in DIR first.
dnl   Found: defines HAVE_VAR, sets VAR_CPPFLAGS and VAR_LDFLAGS, have_VAR=yes.
dnl   Asked for by --with-NAME and not found: an error.
AC_DEFUN([HALYARD_WITH_LIB], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1@<:@=DIR@:>@], [$4 @<:@if found@:>@])],
              [], [with_$1=check])
  have_$2=no
  $2_CPPFLAGS=
  $2_LDFLAGS=
  AS_IF([test "x$with_$1" != xno], [
    AS_CASE([$with_$1], [yes|check|guess|""], [], [
      AS_IF([test -f "$with_$1/include/$3"], [],
            [AC_MSG_ERROR([--with-$1=$with_$1: there is no $with_$1/include/$3])])
      $2_CPPFLAGS="-I$with_$1/include"
      AS_IF([test -d "$with_$1/lib64"], [$2_LDFLAGS="-Wl,-rpath,$with_$1/lib64"],
            [test -d "$with_$1/lib"], [$2_LDFLAGS="-Wl,-rpath,$with_$1/lib"])])
    halyard_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $$2_CPPFLAGS"
    AC_CHECK_HEADER([$3], [have_$2=yes], [have_$2=no], [AC_INCLUDES_DEFAULT])
    CPPFLAGS=$halyard_save_CPPFLAGS
    AS_IF([test $have_$2 = no], [
      AS_CASE([$with_$1], [check|guess|""], [], [
        AC_MSG_ERROR([--with-$1=$with_$1: $3 not found])])
      $2_CPPFLAGS=
      $2_LDFLAGS=
    ])
  ])
  AS_IF([test $have_$2 = yes], [AC_DEFINE([HAVE_$2], [1], [$4])])
  AM_CONDITIONAL([HAVE_$2], [test $have_$2 = yes])
  AC_SUBST([$2_CPPFLAGS])
  AC_SUBST([$2_LDFLAGS])
])

dnl HALYARD_ACCEPT(kind, name): takes an option that packagers of UCX pass and that has
dnl nothing to switch here, so that existing recipes configure without a warning.
AC_DEFUN([HALYARD_ACCEPT_ENABLE],
         [AC_ARG_ENABLE([$1], [AS_HELP_STRING([--enable-$1], [accepted for UCX recipes, no effect])])])
AC_DEFUN([HALYARD_ACCEPT_WITH],
         [AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1], [accepted for UCX recipes, no effect])])])
