dnl Halyard: macros of configure.ac. Each prints one line and leaves one variable,
dnl so that the closing summary can say what was found.
dnl SPDX-License-Identifier: BSD-3-Clause

dnl HALYARD_WITH_LIB(name, VAR, header, library, function, what it is for)
dnl   Looks for an optional library below --with-NAME=DIR or in the usual places.
dnl   Found: defines HAVE_VAR, sets VAR_CPPFLAGS, VAR_LDFLAGS and VAR_LIBS, have_VAR=yes.
dnl   Asked for by --with-NAME and not found: an error. library may be empty (header only).
AC_DEFUN([HALYARD_WITH_LIB], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1@<:@=DIR@:>@], [$6 @<:@if found@:>@])],
              [], [with_$1=check])
  have_$2=no
  $2_CPPFLAGS=
  $2_LDFLAGS=
  $2_LIBS=
  AS_IF([test "x$with_$1" != xno], [
    AS_CASE([$with_$1], [yes|check|guess|""], [], [
      AS_IF([test -f "$with_$1/include/$3"], [],
            [AC_MSG_ERROR([--with-$1=$with_$1: there is no $with_$1/include/$3])])
      $2_CPPFLAGS="-I$with_$1/include"
      AS_IF([test -d "$with_$1/lib64"], [$2_LDFLAGS="-L$with_$1/lib64"],
            [test -d "$with_$1/lib"], [$2_LDFLAGS="-L$with_$1/lib"])])
    halyard_save_CPPFLAGS=$CPPFLAGS
    halyard_save_LDFLAGS=$LDFLAGS
    halyard_save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $$2_CPPFLAGS"
    LDFLAGS="$LDFLAGS $$2_LDFLAGS"
    AC_CHECK_HEADER([$3], [have_$2=yes], [have_$2=no], [AC_INCLUDES_DEFAULT])
    m4_ifval([$4], [
      AS_IF([test $have_$2 = yes],
            [AC_CHECK_LIB([$4], [$5], [$2_LIBS="-l$4"], [have_$2=no])])])
    CPPFLAGS=$halyard_save_CPPFLAGS
    LDFLAGS=$halyard_save_LDFLAGS
    LIBS=$halyard_save_LIBS
    AS_IF([test $have_$2 = no], [
      AS_CASE([$with_$1], [check|guess|""], [], [
        AC_MSG_ERROR([--with-$1=$with_$1: m4_ifval([$4], [$3 or -l$4], [$3]) not found])])
      $2_CPPFLAGS=
      $2_LDFLAGS=
      $2_LIBS=
    ])
  ])
  AS_IF([test $have_$2 = yes], [AC_DEFINE([HAVE_$2], [1], [$6])])
  AM_CONDITIONAL([HAVE_$2], [test $have_$2 = yes])
  AC_SUBST([$2_CPPFLAGS])
  AC_SUBST([$2_LDFLAGS])
  AC_SUBST([$2_LIBS])
])

dnl HALYARD_ACCEPT(kind, name): takes an option that packagers of UCX pass and that has
dnl nothing to switch here, so that existing recipes configure without a warning.
AC_DEFUN([HALYARD_ACCEPT_ENABLE],
         [AC_ARG_ENABLE([$1], [AS_HELP_STRING([--enable-$1], [accepted for UCX recipes, no effect])])])
AC_DEFUN([HALYARD_ACCEPT_WITH],
         [AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1], [accepted for UCX recipes, no effect])])])
